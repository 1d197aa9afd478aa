#define RW_ISA avx2
#define RW_BYTES 32
#include "kernels.hpp"
