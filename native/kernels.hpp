// The kernels of one instruction set: an isa_*.cpp defines RW_ISA and RW_BYTES and includes this.
#pragma once

#include "rotation.hpp"
#include "table.hpp"

#define RW_TEXT_OF(x) #x
#define RW_TEXT(x) RW_TEXT_OF(x)

namespace ropewalk {
namespace RW_ISA {
extern const Kernels kernels;
const Kernels kernels = {
    RW_TEXT(RW_ISA),
    {run<float>, run<double>, run<bf16>, run<f16>},
    fill_table,
};
}  // namespace RW_ISA
}  // namespace ropewalk
