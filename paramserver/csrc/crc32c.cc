#include "paramserver/csrc/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace paramserver {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // 0x1edc6f41 with its bits reversed
// Bytes of each of the three streams; joining them costs as much as a few hundred bytes.
constexpr std::size_t kStreamBytes = 4096;

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: what byte b does to the checksum of what follows it, k bytes later.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? kPolynomial : 0u);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t crc = tables[k - 1][b];
      tables[k][b] = crc >> 8 ^ tables[0][crc & 255u];
    }
  }
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

// shifts[k][b]: what byte k of a checksum, being b, becomes after kStreamBytes zero bytes (the map is linear).
std::array<Table, 4> make_shifts() {
  std::array<Table, 4> shifts{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::uint32_t b = 0; b < 256; ++b) {
      std::uint32_t crc = b << (8 * k);
      for (std::size_t i = 0; i < kStreamBytes; ++i) crc = crc >> 8 ^ kTables[0][crc & 255u];
      shifts[k][b] = crc;
    }
  }
  return shifts;
}

std::uint32_t shifted(const std::array<Table, 4>& shifts, std::uint32_t crc) noexcept {
  return shifts[0][crc & 255u] ^ shifts[1][crc >> 8 & 255u] ^ shifts[2][crc >> 16 & 255u] ^ shifts[3][crc >> 24];
}

std::uint64_t eight(const unsigned char* at) noexcept {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(const unsigned char* at, std::size_t n,
                                                             std::uint32_t before) noexcept {
  static const std::array<Table, 4> shifts = make_shifts();
  std::uint64_t crc = ~before;
  for (; n >= 3 * kStreamBytes; n -= 3 * kStreamBytes, at += 3 * kStreamBytes) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kStreamBytes; i += 8) {
      crc = _mm_crc32_u64(crc, eight(at + i));
      second = _mm_crc32_u64(second, eight(at + kStreamBytes + i));
      third = _mm_crc32_u64(third, eight(at + 2 * kStreamBytes + i));
    }
    crc = shifted(shifts, static_cast<std::uint32_t>(crc)) ^ second;
    crc = shifted(shifts, static_cast<std::uint32_t>(crc)) ^ third;
  }
  for (; n >= 8; n -= 8, at += 8) crc = _mm_crc32_u64(crc, eight(at));
  auto low = static_cast<std::uint32_t>(crc);
  for (; n > 0; --n, ++at) low = _mm_crc32_u8(low, *at);
  return ~low;
}

}  // namespace

std::uint32_t crc32c_portable(const void* bytes, std::size_t n, std::uint32_t before) noexcept {
  const auto* at = static_cast<const unsigned char*>(bytes);
  std::uint32_t crc = ~before;
  for (; n >= 8; n -= 8, at += 8) {
    const std::uint64_t x = eight(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][x >> (8 * k) & 255u];
  }
  for (; n > 0; --n, ++at) crc = crc >> 8 ^ kTables[0][(crc ^ *at) & 255u];
  return ~crc;
}

std::uint32_t crc32c(const void* bytes, std::size_t n, std::uint32_t before) noexcept {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (!has_instruction) return crc32c_portable(bytes, n, before);
  return crc32c_sse42(static_cast<const unsigned char*>(bytes), n, before);
}

}  // namespace paramserver
