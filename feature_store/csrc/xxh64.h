// XXH64, after the xxHash specification 0.1.1 (github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
// Reads memory byte-wise where it is not aligned; nothing is allocated; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feature_store {

// Hash of `size` bytes; `data` may be null when size is 0.
std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed) noexcept;

// Hash of the 16 bytes (first, second), both little-endian: the cross of two ids.
std::uint64_t xxh64_pair(std::uint64_t first, std::uint64_t second, std::uint64_t seed) noexcept;

}  // namespace feature_store
