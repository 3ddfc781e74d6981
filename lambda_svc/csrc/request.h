// What one ranking request brings and what it gets back, as plain data.
//
// Thread-safety: each belongs to one request. Ownership: a RankRequest borrows every buffer for the call; a RankResult
// owns its arrays, nothing in it points into the arena.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lambda_svc/csrc/plan.h"
#include "paramserver/csrc/row_source.h"

namespace lambda_svc {

class UserState;

// Borrowed bytes that need not be aligned. A null `data` means not given.
struct Buffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// A raw feature that the request brings; see feature_store::ColumnView.
struct RequestColumn {
  Side side;
  std::uint32_t feature;  // index among the side's features
  Buffer values;
  Buffer row_offsets;   // int32 [rows + 1], multi-valued features only
  Buffer byte_offsets;  // int32 [values + 1], bytes features only
};

struct RankRequest {
  std::int64_t user_id = 0;
  Buffer candidate_ids;  // int64 [n]
  std::span<const RequestColumn> columns;
  std::span<const Buffer> formula_inputs;  // float32 [n] each
  std::size_t top_k = 0;                   // 0: all
  std::int64_t deadline_ns = 0;            // CLOCK_MONOTONIC; 0: none
  // CLOCK_MONOTONIC; 0: all candidates or an error. Else, once a slice is scored, none begins that would end later.
  std::int64_t partial_ns = 0;
  const std::atomic<bool>* cancelled = nullptr;
  const UserState* user_state = nullptr;  // of this request's user features, see user_state.h; used if it fits

  std::size_t n() const { return candidate_ids.bytes / sizeof(std::int64_t); }
};

// Bits of RankResult::flags, as in ranking.proto.
inline constexpr std::uint8_t kCandidateUnknown = 1;
inline constexpr std::uint8_t kCandidateNan = 2;

struct StageMicroseconds {
  std::uint32_t gather = 0;
  std::uint32_t lookup = 0;
  std::uint32_t run = 0;
  std::uint32_t topk = 0;
};

struct RankResult {
  // Arrays of k, best first.
  std::vector<std::uint32_t> positions;
  std::vector<std::int64_t> candidate_ids;
  std::vector<double> rank_scores;
  std::vector<float> heads;  // [heads, k]
  std::vector<std::uint8_t> flags;

  // Candidates [0, scored) were scored, the `missing` after them were not: see RankRequest::partial_ns.
  std::size_t scored = 0;
  std::size_t missing = 0;

  // About all n candidates; nan_scores about those scored.
  std::array<feature_store::GatherStats, kSides> features;
  std::vector<std::array<std::uint64_t, paramserver::kRowStatuses>> tables;  // ids by status, in the plan's order
  std::uint64_t ids_unanswered = 0;  // of those, ids that could not be asked or were not read in time
  bool unknown_user = false;
  bool user_state_used = false;
  std::uint64_t unknown_candidates = 0;
  std::uint64_t nan_scores = 0;
  std::uint64_t bytes_copied = 0;
  std::uint32_t slices = 0;
  StageMicroseconds times;
};

// One line of coverage: "user", "context", "item" or "table/NAME".
struct Coverage {
  std::string source;
  std::uint64_t asked;
  std::uint64_t answered;
};
std::vector<Coverage> coverage_of(const Plan& plan, const RankResult& result);

// Sizes and offsets of everything the request brought, so that no later stage reads outside a buffer. Throws
// InvalidRequest naming the field.
void check_request(const Plan& plan, const RankRequest& request);

}  // namespace lambda_svc
