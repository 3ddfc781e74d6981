// Which instruction set the kernels use. Everything is compiled for baseline x86-64; wider code is chosen at run time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace feature_store {

enum class Isa : std::uint8_t { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

// "scalar", "avx2" or "avx512".
const char* isa_name(Isa isa) noexcept;

// What this CPU (and its operating system) can run, narrowest first; never empty.
std::vector<Isa> isas_available();

// The widest available one for an empty name, else the one named. Throws IsaError when unknown or not available.
Isa choose_isa(std::string_view name);

}  // namespace feature_store
