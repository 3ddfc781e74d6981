#include "lambda_svc/csrc/workspace.h"

namespace lambda_svc {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + kFeedAlignment - 1) / kFeedAlignment * kFeedAlignment; }

std::size_t region_bytes(const Region& region, std::size_t n) {
  return aligned(region.bytes_fixed + region.bytes_per_row * (region.rows_of == Side::kItem ? n : 1));
}

std::size_t total_bytes(const Plan& plan, std::size_t n) {
  std::size_t bytes = aligned(plan.regions.size() * sizeof(std::byte*));
  for (const Region& region : plan.regions) bytes += region_bytes(region, n);
  return bytes;
}

}  // namespace

Workspace::Workspace(const Plan& plan, Arena& arena, std::size_t n)
    : n_(n), lease_(arena.lease(total_bytes(plan, n))), starts_(reinterpret_cast<std::byte**>(lease_.data())) {
  std::byte* next = lease_.data() + aligned(plan.regions.size() * sizeof(std::byte*));
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    starts_[i] = next;
    next += region_bytes(plan.regions[i], n);
  }
}

}  // namespace lambda_svc
