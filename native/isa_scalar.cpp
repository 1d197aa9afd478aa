#define RW_ISA scalar
#define RW_BYTES 0
#include "kernels.hpp"
