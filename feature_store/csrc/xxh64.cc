#include "feature_store/csrc/xxh64.h"

#include <bit>
#include <cstring>

namespace feature_store {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are little-endian in memory");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

template <class T>
T read(const unsigned char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) noexcept {
  return (hash ^ round(0, lane)) * kPrime1 + kPrime4;
}

std::uint64_t mix8(std::uint64_t hash, std::uint64_t input) noexcept {
  return std::rotl(hash ^ round(0, input), 27) * kPrime1 + kPrime4;
}

std::uint64_t avalanche(std::uint64_t hash) noexcept {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

// Consumes the stripes of 32 bytes and leaves `at` behind them.
std::uint64_t stripes(const unsigned char*& at, const unsigned char* end, std::uint64_t seed) noexcept {
  std::uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
  for (; end - at >= 32; at += 32) {
    a = round(a, read<std::uint64_t>(at));
    b = round(b, read<std::uint64_t>(at + 8));
    c = round(c, read<std::uint64_t>(at + 16));
    d = round(d, read<std::uint64_t>(at + 24));
  }
  const std::uint64_t hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  return merge(merge(merge(merge(hash, a), b), c), d);
}

}  // namespace

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed) noexcept {
  if (size == 0) return avalanche(seed + kPrime5);
  const unsigned char* at = static_cast<const unsigned char*>(data);
  const unsigned char* end = at + size;
  std::uint64_t hash = (size >= 32 ? stripes(at, end, seed) : seed + kPrime5) + size;
  for (; end - at >= 8; at += 8) hash = mix8(hash, read<std::uint64_t>(at));
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (read<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = std::rotl(hash ^ (*at * kPrime5), 11) * kPrime1;
  return avalanche(hash);
}

std::uint64_t xxh64_pair(std::uint64_t first, std::uint64_t second, std::uint64_t seed) noexcept {
  return avalanche(mix8(mix8(seed + kPrime5 + 16, first), second));
}

}  // namespace feature_store
