#include "feature_store/csrc/kernels.h"

#include <bit>

namespace feature_store {
namespace {

#define FS_INLINE inline __attribute__((always_inline))

// ln(1 + x) after fdlibm's e_log.c and s_log1p.c (Sun Microsystems, 1993; error below 1 ulp of float64), arranged
// without branches so that it vectorises: u = 1 + x, whose rounding error is put back as (x - (u - 1)) / u.
FS_INLINE float log1p_one(float value) noexcept {
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdULL, kOne = 1023ULL << 52;
  const double x = value;
  const bool inside = x > -1.0 && x <= 3.4028234663852886e38;
  const double safe = inside ? x : 0.0;
  const double u = 1.0 + safe;
  const double correction = (safe - (u - 1.0)) / u;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(u);
  const std::uint64_t biased = (bits - kRootHalf + kOne) >> 52;
  const double k = std::bit_cast<double>(0x4330000000000000ULL | biased) - 4503599627371519.0;
  const double f = std::bit_cast<double>(bits - (biased << 52) + kOne) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double r = 1.479819860511658591e-01;
  r = 1.531383769920937332e-01 + z * r;
  r = 1.818357216161805012e-01 + z * r;
  r = 2.222219843214978396e-01 + z * r;
  r = 2.857142874366239149e-01 + z * r;
  r = 3.999999999940941908e-01 + z * r;
  r = 6.666666666666735130e-01 + z * r;
  const double half = 0.5 * f * f;
  const double log = k * kLn2High - ((half - (s * (half + z * r) + (k * kLn2Low + correction))) - f);
  float out = static_cast<float>(log);
  out = x == 0.0 ? value : out;
  out = x == -1.0 ? -__builtin_inff() : out;
  out = x > 3.4028234663852886e38 ? __builtin_inff() : out;
  return x >= -1.0 ? out : std::bit_cast<float>(0x7fc00000U);
}

FS_INLINE void log1p_body(float* values, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) values[i] = log1p_one(values[i]);
}

FS_INLINE void clip_body(float* values, std::size_t n, float lo, float hi) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const float low = values[i] < lo ? lo : values[i];
    values[i] = low > hi ? hi : low;
  }
}

// Few boundaries: compare every value with every boundary, a block of values at a time. Many: a branchless search.
FS_INLINE void bucketize_body(const float* values, std::size_t n, const float* boundaries, std::size_t m,
                              std::int64_t* out) noexcept {
  constexpr std::size_t kBlock = 64, kFew = 24;
  std::size_t i = 0;
  if (m <= kFew) {
    for (; i + kBlock <= n; i += kBlock) {
      std::int32_t counts[kBlock] = {};
      for (std::size_t b = 0; b < m; ++b) {
        const float boundary = boundaries[b];
        for (std::size_t j = 0; j < kBlock; ++j) counts[j] += values[i + j] < boundary ? 0 : 1;
      }
      for (std::size_t j = 0; j < kBlock; ++j) out[i + j] = counts[j];
    }
  }
  for (; i < n; ++i) {
    const float x = values[i];
    std::size_t base = 0;
    for (std::size_t left = m; left > 1;) {
      const std::size_t half = left / 2;
      base += x < boundaries[base + half - 1] ? 0 : half;
      left -= half;
    }
    out[i] = static_cast<std::int64_t>(base + (m != 0 && !(x < boundaries[base]) ? 1 : 0));
  }
}

template <class T>
FS_INLINE void gather_body(const T* source, const std::uint32_t* rows, std::size_t n, T* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = source[rows[i]];
}

// The same bodies, compiled once for each instruction set.
#define FS_KERNELS(NAME, TARGET)                                                                                      \
  namespace NAME {                                                                                                    \
  TARGET void clip(float* v, std::size_t n, float lo, float hi) noexcept { clip_body(v, n, lo, hi); }                 \
  TARGET void log1p(float* v, std::size_t n) noexcept { log1p_body(v, n); }                                           \
  TARGET void bucketize(const float* v, std::size_t n, const float* b, std::size_t m, std::int64_t* out) noexcept {   \
    bucketize_body(v, n, b, m, out);                                                                                  \
  }                                                                                                                   \
  TARGET void gather32(const std::uint32_t* s, const std::uint32_t* r, std::size_t n, std::uint32_t* out) noexcept {  \
    gather_body(s, r, n, out);                                                                                        \
  }                                                                                                                   \
  TARGET void gather64(const std::uint64_t* s, const std::uint32_t* r, std::size_t n, std::uint64_t* out) noexcept {  \
    gather_body(s, r, n, out);                                                                                        \
  }                                                                                                                   \
  constexpr Kernels table{clip, log1p, bucketize, gather32, gather64};                                                \
  }

FS_KERNELS(scalar, )
#if defined(__x86_64__)
FS_KERNELS(avx2, __attribute__((target("avx2"))))
FS_KERNELS(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))))
#endif

}  // namespace

const Kernels& kernels(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::table;
  if (isa == Isa::kAvx2) return avx2::table;
#endif
  return scalar::table;
}

}  // namespace feature_store
