// Expected values are those of the reference implementation: its sanity test buffer and published digests.
#include "feature_store/csrc/xxh64.h"

#include <cstring>
#include <string_view>

#include "feature_store/csrc/check.h"

using namespace feature_store;

static std::uint64_t of(std::string_view text, std::uint64_t seed = 0) { return xxh64(text.data(), text.size(), seed); }

TEST(xxh64_published_digests) {
  CHECK(of("") == 0xEF46DB3751D8E999ULL);
  CHECK(of("a") == 0xD24EC4F1A98C6E5BULL);
  CHECK(of("abc") == 0x44BC2CF5AD770999ULL);
  CHECK(of("Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1ULL);
}

TEST(xxh64_reference_sanity_buffer) {
  // xxhsum.c fills its buffer from a generator, so the digests cover every tail and stripe.
  unsigned char buffer[222];
  std::uint64_t generator = 2654435761U;
  for (unsigned char& byte : buffer) {
    byte = static_cast<unsigned char>(generator >> 56);
    generator *= 11400714785074694797ULL;
  }
  constexpr std::uint64_t kSeed = 2654435761U;
  CHECK(xxh64(nullptr, 0, kSeed) == 0xAC75FDA2929B17EFULL);
  CHECK(xxh64(buffer, 1, 0) == 0xE934A84ADB052768ULL);
  CHECK(xxh64(buffer, 1, kSeed) == 0x5014607643A9B4C3ULL);
  CHECK(xxh64(buffer, 4, 0) == 0x9136A0DCA57457EEULL);
  CHECK(xxh64(buffer, 14, 0) == 0x8282DCC4994E35C8ULL);
  CHECK(xxh64(buffer, 14, kSeed) == 0xC3BD6BF63DEB6DF0ULL);
  CHECK(xxh64(buffer, 222, 0) == 0xB641AE8CB691C174ULL);
  CHECK(xxh64(buffer, 222, kSeed) == 0x20CB8AB7AE10C14AULL);
}

TEST(xxh64_pair_is_the_hash_of_16_bytes) {
  const std::uint64_t pair[2] = {0x8000000000000000ULL, 42};
  CHECK(xxh64_pair(pair[0], pair[1], 7) == xxh64(pair, 16, 7));
  CHECK(xxh64_pair(pair[0], pair[1], 0) != xxh64_pair(pair[1], pair[0], 0));
}

TEST(xxh64_reads_unaligned_memory) {
  char buffer[80];
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::memset(buffer + shift, 'x', 70);
    CHECK(xxh64(buffer + shift, 70, 1) == of(std::string_view(buffer + shift, 70), 1));
  }
  std::memset(buffer, 'x', 80);
  CHECK(xxh64(buffer + 1, 70, 1) == xxh64(buffer, 70, 1));
}
