// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of files, because CPUs have an instruction for it.
//
// With SSE4.2 three streams run at once, since the instruction takes three cycles but starts every cycle; CPUs without
// it take eight table look-ups per eight bytes. Both give the same number. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paramserver {

// The checksum of `bytes`, or of what `before` is the checksum of followed by `bytes`.
std::uint32_t crc32c(const void* bytes, std::size_t n, std::uint32_t before = 0) noexcept;

// The same without the instruction: what crc32c falls back to.
std::uint32_t crc32c_portable(const void* bytes, std::size_t n, std::uint32_t before = 0) noexcept;

}  // namespace paramserver
