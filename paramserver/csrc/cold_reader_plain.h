// What the device gives: the same pages read by plain threads, one direct read each at a time. The measure of
// ColdReader.
//
// Thread-safety: a function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace paramserver {

// Reads `bytes` (a multiple of 4096) at each offset past the page cache, on so many threads; returns the seconds from
// the first read to the last. Throws SlotFileError, also where the file system has no direct reads.
double plain_parallel_read(const std::string& path, const std::uint64_t* offsets /*[n]*/, std::size_t n,
                           std::size_t bytes, unsigned threads);

}  // namespace paramserver
