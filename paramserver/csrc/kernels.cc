#include "paramserver/csrc/kernels.h"

#include <cstdlib>
#include <string>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

bool cpu_has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }
bool cpu_has_avx512() { return cpu_has_avx2() && __builtin_cpu_supports("avx512f"); }

}  // namespace

const Kernels& choose_kernels(const char* wanted) {
  __builtin_cpu_init();
  const std::string name = wanted == nullptr ? "" : wanted;
  if (name.empty()) return cpu_has_avx512() ? kAvx512Kernels : cpu_has_avx2() ? kAvx2Kernels : kScalarKernels;
  if (name == "scalar") return kScalarKernels;
  if (name == "avx2" && cpu_has_avx2()) return kAvx2Kernels;
  if (name == "avx512" && cpu_has_avx512()) return kAvx512Kernels;
  if (name == "avx2" || name == "avx512") {
    throw InstructionSetError("instruction set '" + name + "' was asked for (by argument or PARAMSERVER_ISA), but this "
                              "CPU lacks it: ask for none to use " + choose_kernels("").name);
  }
  throw InstructionSetError("instruction set '" + name + "' was asked for (by argument or PARAMSERVER_ISA), expected "
                            "scalar, avx2 or avx512");
}

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels(std::getenv("PARAMSERVER_ISA"));
  return chosen;
}

}  // namespace paramserver
