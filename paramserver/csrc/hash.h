// The one mixing hash of ids, used wherever an id decides a place.
//
// It is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014;
// constants of Stafford's mix 13). It is a bijection of 64-bit patterns, so two ids never share a hash: no id is
// special, negative ids and the extremes included.
//
// Places inside one process take the HIGH bits of the hash (`home_line`). Places on shards take the LOW bits
// (`shard_of`), or every shard would fill only its own stretch of its index.
#pragma once

#include <cstdint>

namespace paramserver {

constexpr std::uint64_t mix(std::int64_t id) noexcept {
  std::uint64_t x = static_cast<std::uint64_t>(id);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Maps an id to [0, lines) without a division and in the order of the hashes, so that an index of any size can be
// rebuilt in one sequential pass (Lemire: "Fast Random Integer Generation in an Interval", 2019).
constexpr std::uint64_t home_line(std::int64_t id, std::uint64_t lines) noexcept {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(mix(id)) * lines) >> 64);
}

// The shard, [0, shards), that holds an id: Lemire's reduction again, of the low half of the hash.
constexpr std::uint32_t shard_of(std::int64_t id, std::uint32_t shards) noexcept {
  return static_cast<std::uint32_t>(((mix(id) & 0xffffffffULL) * shards) >> 32);
}

}  // namespace paramserver
