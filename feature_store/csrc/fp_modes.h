// Sets default floating-point modes for a scope: round to nearest, denormals kept, no traps. Engines' threads often
// flush denormals to zero; transforms must give the same bytes there.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace feature_store {

class DefaultFpModes {
 public:
#if defined(__SSE2__)
  DefaultFpModes() noexcept : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFpModes() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  DefaultFpModes() noexcept {}
#endif

 public:
  DefaultFpModes(const DefaultFpModes&) = delete;
  DefaultFpModes& operator=(const DefaultFpModes&) = delete;
};

}  // namespace feature_store
