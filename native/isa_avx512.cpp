#define RW_ISA avx512
#define RW_BYTES 64
#include "kernels.hpp"
