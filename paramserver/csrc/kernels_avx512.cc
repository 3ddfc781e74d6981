// The loops are those of the AVX2 set; what differs is the width of a vector.
#include <immintrin.h>

#include "paramserver/csrc/elements.h"
#include "paramserver/csrc/kernels.h"

#define PARAMSERVER_TARGET __attribute__((target("avx512f,avx2,f16c")))
#define PARAMSERVER_INLINE __attribute__((target("avx512f,avx2,f16c"), always_inline)) inline

namespace paramserver {
namespace {

using Vec = __m512;
constexpr std::size_t kWidth = 16;

PARAMSERVER_INLINE Vec set1(float value) { return _mm512_set1_ps(value); }
PARAMSERVER_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
PARAMSERVER_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
PARAMSERVER_INLINE Vec divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }

// Sixteen elements of the types that are numbers as they are.
template <Stored kStored>
PARAMSERVER_INLINE Vec load(const std::byte* row, std::size_t j) {
  if constexpr (kStored == Stored::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(row) + j);
  } else {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * j));
    if constexpr (kStored == Stored::kF16) return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
}

// Sixteen codes of an int8 row, as numbers.
PARAMSERVER_INLINE Vec load_codes(const std::byte* row, std::size_t j) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + j))));
}

PARAMSERVER_INLINE __m256i bf16_of(Vec value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
}

template <RowType kType>
PARAMSERVER_INLINE void store(std::byte* row, std::size_t j, Vec value) {
  if constexpr (kType == RowType::kF32) {
    _mm512_storeu_ps(reinterpret_cast<float*>(row) + j, value);
  } else {
    const __m256i words = kType == RowType::kF16 ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT) : bf16_of(value);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * j), words);
  }
}

#include "paramserver/csrc/kernels_vector.inl"

}  // namespace

const Kernels kAvx512Kernels = kernel_set("avx512");

}  // namespace paramserver
