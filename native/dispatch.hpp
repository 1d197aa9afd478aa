// The instruction set is chosen when the module is loaded.
#pragma once

#include "job.hpp"

#include <string>
#include <vector>

namespace ropewalk {

// Those that this processor runs, the plainest first.
const std::vector<const Kernels *> &available();

const Kernels &chosen();

// False: this processor does not have it.
bool choose(const std::string &name);

}  // namespace ropewalk
