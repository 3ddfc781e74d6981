#include <immintrin.h>

#include "paramserver/csrc/elements.h"
#include "paramserver/csrc/kernels.h"

#define PARAMSERVER_TARGET __attribute__((target("avx2,f16c")))
#define PARAMSERVER_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline

namespace paramserver {
namespace {

using Vec = __m256;
constexpr std::size_t kWidth = 8;

PARAMSERVER_INLINE Vec set1(float value) { return _mm256_set1_ps(value); }
PARAMSERVER_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
PARAMSERVER_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
PARAMSERVER_INLINE Vec divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }

// Eight elements of the types that are numbers as they are.
template <Stored kStored>
PARAMSERVER_INLINE Vec load(const std::byte* row, std::size_t j) {
  if constexpr (kStored == Stored::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + j);
  } else {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * j));
    if constexpr (kStored == Stored::kF16) return _mm256_cvtph_ps(words);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
}

// Eight codes of an int8 row, as numbers.
PARAMSERVER_INLINE Vec load_codes(const std::byte* row, std::size_t j) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + j))));
}

PARAMSERVER_INLINE __m128i bf16_of(Vec value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

template <RowType kType>
PARAMSERVER_INLINE void store(std::byte* row, std::size_t j, Vec value) {
  if constexpr (kType == RowType::kF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(row) + j, value);
  } else {
    const __m128i words = kType == RowType::kF16 ? _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT) : bf16_of(value);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * j), words);
  }
}

#include "paramserver/csrc/kernels_vector.inl"

}  // namespace

const Kernels kAvx2Kernels = kernel_set("avx2");

}  // namespace paramserver
