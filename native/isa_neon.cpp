#define RW_ISA neon
#define RW_BYTES 16
#include "kernels.hpp"
