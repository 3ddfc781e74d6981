// The best k candidates: rank score descending, NaN last, ties by candidate order.
//
// Thread-safety: a function of its arguments only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lambda_svc {

// Scores as integers that ascend while scores descend, so that comparing needs no case for NaN: it is the largest key.
struct RankKey {
  std::uint64_t key;
  std::uint32_t index;
};

// Writes the indices of the best min(k, n) scores, best first, and returns how many; k = 0 means all. Fewer than all
// are selected first, then ordered among themselves. All are ordered by a radix sort, since the branches of a
// comparison cannot be predicted.
std::size_t top_k(const double* scores /*[n]*/, std::size_t n, std::size_t k, RankKey* scratch /*[2 n]*/,
                  std::uint32_t* out /*[min(k, n), or n when k is 0]*/);

}  // namespace lambda_svc
