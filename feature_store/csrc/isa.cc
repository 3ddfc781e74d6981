#include "feature_store/csrc/isa.h"

#include <string>

#include "feature_store/csrc/errors.h"

namespace feature_store {

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2: return "avx2";
    case Isa::kScalar: break;
  }
  return "scalar";
}

std::vector<Isa> isas_available() {
  std::vector<Isa> found{Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) {
    found.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
      found.push_back(Isa::kAvx512);
    }
  }
#endif
  return found;
}

Isa choose_isa(std::string_view name) {
  const std::vector<Isa> found = isas_available();
  if (name.empty()) return found.back();
  std::string words;
  for (const Isa isa : found) {
    if (name == isa_name(isa)) return isa;
    words += (words.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  throw IsaError("instruction set: got '" + std::string(name) + "', expected one that this CPU has: " + words +
                 "; unset FEATURE_STORE_ISA to use the widest");
}

}  // namespace feature_store
