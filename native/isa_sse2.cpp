#define RW_ISA sse2
#define RW_BYTES 16
#include "kernels.hpp"
