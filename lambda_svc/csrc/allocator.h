// The C library's allocator, told what an engine does to it.
//
// TensorFlow allocates the temporaries of every operation anew and frees them: megabytes per slice. By default glibc
// maps such blocks, or trims its heaps, and each run pays for thousands of page faults (5,000 a request of 1,682
// candidates, 1.5 times the run's time).
//
// Thread-safety: call once, before the first run.
#pragma once

namespace lambda_svc {

// Lets glibc keep what is freed: blocks below 32 MiB come from its heaps, a heap is trimmed only beyond 512 MiB free,
// and there are no more heaps than `heaps`, since each keeps its own. Without effect on a preloaded jemalloc.
void keep_freed_memory(int heaps) noexcept;

// Gives back to the system what is freed and kept.
void return_freed_memory() noexcept;

}  // namespace lambda_svc
