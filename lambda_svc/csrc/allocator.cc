#include "lambda_svc/csrc/allocator.h"

#include <malloc.h>

namespace lambda_svc {

void keep_freed_memory(int heaps) noexcept {
#ifdef __GLIBC__
  constexpr int kMiB = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMiB);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, 512 * kMiB);
  mallopt(M_TOP_PAD, 64 * kMiB);
  mallopt(M_ARENA_MAX, heaps);
#endif
}

void return_freed_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace lambda_svc
