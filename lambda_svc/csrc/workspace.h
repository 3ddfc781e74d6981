// One request's memory: a leased block laid out by the plan's regions for n candidates, every region 64-byte aligned.
//
//   | where region 0, 1, ... starts | region 0 | region 1 | ...
//
// Thread-safety: belongs to one request. Ownership: holds the request's reference to the lease.
#pragma once

#include <cstddef>

#include "lambda_svc/csrc/arena.h"
#include "lambda_svc/csrc/plan.h"

namespace lambda_svc {

class Workspace {
 public:
  Workspace(const Plan& plan, Arena& arena, std::size_t n);  // throws ArenaExhausted

  template <class T>
  T* at(RegionIndex region) const {
    return reinterpret_cast<T*>(starts_[region]);
  }
  std::size_t n() const { return n_; }
  std::size_t rows(Side side) const { return side == Side::kItem ? n_ : 1; }
  const Lease& lease() const { return lease_; }

 private:
  std::size_t n_;
  Lease lease_;
  std::byte** starts_;
};

}  // namespace lambda_svc
