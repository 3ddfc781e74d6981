// Known vectors of RFC 3720, and the two ways against each other on every length and split that takes another branch.
#include "paramserver/csrc/crc32c.h"

#include <vector>

#include "paramserver/csrc/check.h"

int main() {
  using paramserver::crc32c;
  using paramserver::crc32c_portable;
  std::vector<unsigned char> bytes(32, 0);
  for (auto* crc : {crc32c, crc32c_portable}) {
    CHECK(crc("123456789", 9, 0) == 0xe3069283u);
    CHECK(crc("", 0, 0) == 0u);
    CHECK(crc(bytes.data(), 32, 0) == 0x8a9136aau);
    std::vector<unsigned char> ones(32, 0xff), up(32);
    for (unsigned i = 0; i < 32; ++i) up[i] = static_cast<unsigned char>(i);
    CHECK(crc(ones.data(), 32, 0) == 0x62a8ab43u);
    CHECK(crc(up.data(), 32, 0) == 0x46dd794eu);
  }
  bytes.resize(40000);
  std::uint32_t x = 1;
  for (auto& byte : bytes) byte = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  for (std::size_t n : {1u, 7u, 8u, 9u, 63u, 4096u, 12287u, 12288u, 12289u, 24576u, 40000u}) {
    const std::uint32_t whole = crc32c_portable(bytes.data(), n);
    CHECK(crc32c(bytes.data(), n) == whole);
    CHECK(crc32c(bytes.data() + n / 3, n - n / 3, crc32c(bytes.data(), n / 3)) == whole);
  }
  return paramserver::check_failures == 0 ? 0 : 1;
}
