// The native core without Python: hash, halves, kernels, growth, deletion, pooling and use through RowSource.
#include "paramserver/csrc/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/half.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

std::vector<float> rows_of(const std::vector<std::int64_t>& ids, std::uint32_t dim, float salt = 0.0f) {
  std::vector<float> rows;
  for (const std::int64_t id : ids) {
    for (std::uint32_t j = 0; j < dim; ++j) rows.push_back(static_cast<float>(id % 1000) + salt + j);
  }
  return rows;
}

void hash_spreads_and_is_fixed() {
  CHECK(mix(0) == 0);
  CHECK(mix(1) == 0x5692161d100b05e5ULL);
  CHECK(mix(-1) == 0xb4d055fcf2cbbd7bULL);
  std::set<std::uint64_t> hashes;
  for (std::int64_t id = -1000; id <= 1000; ++id) hashes.insert(mix(id));
  for (const std::int64_t id : {kLowest, kLowest + 1, kHighest, kHighest - 1}) hashes.insert(mix(id));
  CHECK(hashes.size() == 2005);
  for (const std::int64_t id : {kLowest, std::int64_t{-1}, std::int64_t{0}, kHighest}) CHECK(home_line(id, 7) < 7);
}

void halves_round_like_the_standard() {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f32_of_f16(static_cast<std::uint16_t>(half));
    if (std::isnan(value)) continue;
    CHECK(f16_of_f32(value) == half);
  }
  CHECK(f16_of_f32(65519.0f) == 0x7bff && f16_of_f32(65520.0f) == 0x7c00);
  CHECK(f16_of_f32(0x1p-25f) == 0 && f16_of_f32(0x1.8p-25f) == 1 && f16_of_f32(-0x1p-26f) == 0x8000);
  CHECK(f16_of_f32(2049.0f) == f16_of_f32(2048.0f) && f16_of_f32(2051.0f) == f16_of_f32(2052.0f));
  CHECK(bf16_of_f32(1.0f) == 0x3f80 && bf16_of_f32(0x1.01p0f) == 0x3f80 && bf16_of_f32(0x1.03p0f) == 0x3f82);
  CHECK(bf16_of_f32(std::bit_cast<float>(0x7f800001u)) == 0x7fc0);
}

void grows_from_nothing_and_keeps_every_id() {
  Table table({.dim = 3});
  std::vector<std::int64_t> ids = {kLowest, kHighest, -1, 0, 1, kLowest + 1};
  for (std::int64_t i = 2; i < 300'000; ++i) ids.push_back(i * 3 - 400'000);
  for (std::size_t first = 0; first < ids.size(); first += 10'007) {
    const std::size_t end = std::min(ids.size(), first + 10'007);
    const std::vector<std::int64_t> part(&ids[first], &ids[first] + (end - first));
    table.upsert(part.data(), rows_of(part, 3).data(), part.size());
  }
  const std::set<std::int64_t> distinct(ids.begin(), ids.end());
  CHECK(table.size() == distinct.size());
  std::vector<float> out(ids.size() * 3);
  std::vector<RowStatus> status(ids.size());
  table.lookup({}, ids.data(), ids.size(), RowType::kF32, out.data(), status.data());
  CHECK(out == rows_of(ids, 3));
  CHECK(std::count(status.begin(), status.end(), RowStatus::kHit) == static_cast<std::ptrdiff_t>(ids.size()));
  CHECK(table.ids(0) == std::vector<std::int64_t>(distinct.begin(), distinct.end()));
}

void deleting_frees_rows_and_slots() {
  Table table({.dim = 4});
  std::vector<std::int64_t> ids(1000);
  std::uint64_t bytes = 0;
  for (std::int64_t round = 0; round < 300; ++round) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = round * 1000 + static_cast<std::int64_t>(i);
    CHECK(table.upsert(ids.data(), rows_of(ids, 4).data(), ids.size()) == ids.size());
    CHECK(table.erase(ids.data(), ids.size()) == ids.size());
    CHECK(table.erase(ids.data(), ids.size()) == 0);
    if (round == 10) bytes = table.stats().bytes();
  }
  CHECK(table.size() == 0 && table.ids(0).empty());
  CHECK(table.stats().bytes() <= 2 * bytes);
}

// Rows keep their places in segments of any number, and places are not cut to 32 bits.
void row_numbers_map_to_places_of_their_own() {
  TableState small;
  small.row_bytes = 16'384;
  RowStore grown(small, 0, false, anonymous_memory());
  std::set<const std::byte*> places;
  constexpr RowNumber kRows = 128 * 8;  // segments 0 to 3
  for (RowNumber row = 0; row < kRows; ++row) {
    CHECK(grown.allocate() == row);
    std::memcpy(grown.at(row), &row, sizeof row);
    places.insert(grown.at(row));
  }
  CHECK(places.size() == kRows);
  for (RowNumber row = 0; row < kRows; ++row) CHECK(std::memcmp(grown.at(row), &row, sizeof row) == 0);
  grown.release(7);
  CHECK(grown.allocate() == 7 && grown.allocate() == kRows);
  TableState big;
  big.row_bytes = 16'384;
  RowStore large(big, std::uint64_t{1} << 21, false, anonymous_memory());  // 32 GiB that nobody touches
  CHECK(large.at((std::uint64_t{1} << 21) - 1) - large.at(0) == 16'384 * ((std::ptrdiff_t{1} << 21) - 1));
}

// Memory retired in turn t is free from turn t + 2 on: no reader that entered before may let the turn get there.
void a_visit_holds_the_turn() {
  ReaderGate gate;
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t retired = gate.turn();
    {
      const ReaderGate::Visit early(gate);
      for (int look = 0; look < 5; ++look) gate.try_advance();
      CHECK(gate.turn() < retired + ReaderGate::kTurnsToQuiet);
      // Readers that come later do not hold up what the early one does not.
      const ReaderGate::Visit late(gate);
    }
    while (gate.try_advance() && gate.turn() < retired + ReaderGate::kTurnsToQuiet) {
    }
    CHECK(gate.turn() == retired + ReaderGate::kTurnsToQuiet);
    gate.try_advance();  // the other parity's turn next round
  }
}

// Readers that overlap without a pause never stop the turn for good.
void overlapping_visits_let_the_turn_go_on() {
  ReaderGate gate;
  auto visit = std::make_unique<ReaderGate::Visit>(gate);
  const std::uint64_t first = gate.turn();
  for (int step = 0; step < 100; ++step) {
    gate.try_advance();
    auto next = std::make_unique<ReaderGate::Visit>(gate);
    visit = std::move(next);
  }
  CHECK(gate.turn() >= first + 50);
}

void pools_through_row_source() {
  const float unknown[2] = {9.0f, -9.0f};
  const auto table = std::make_shared<Table>(TableOptions{.dim = 2, .default_row = unknown});
  const std::int64_t known[2] = {-5, kHighest};
  const float rows[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  table->upsert(known, rows, 2);
  const std::shared_ptr<const RowSource> source = table;
  const std::int64_t ids[4] = {-5, kHighest, 77, -5};
  const std::int32_t offsets[6] = {0, 0, 2, 3, 4, 4};
  const float weights[4] = {2.0f, 1.0f, 0.0f, -1.0f};
  float out[10];
  RowStatus status[4];
  source->lookup_pooled({}, ids, offsets, 5, Pooling::kMean, nullptr, RowType::kF32, out, status);
  const float mean[10] = {0, 0, 2, 3, 9, -9, 1, 2, 0, 0};
  CHECK(std::memcmp(out, mean, sizeof out) == 0);
  CHECK(status[0] == RowStatus::kHit && status[2] == RowStatus::kDefault);
  source->lookup_pooled({}, ids, offsets, 5, Pooling::kMean, weights, RowType::kF32, out, status);
  CHECK(out[2] == 5.0f / 3.0f && out[4] == 0.0f && out[6] == 1.0f);
  source->lookup_pooled({}, ids, offsets, 5, Pooling::kSqrtN, weights, RowType::kF32, out, nullptr);
  CHECK(out[2] == 5.0f / std::sqrt(5.0f) && out[6] == -1.0f);
}

void context_is_obeyed() {
  const float unknown[1] = {5.0f};
  Table table({.dim = 1, .default_row = unknown});
  const std::int64_t id = 1;
  const float row = 2.0f;
  table.upsert(&id, &row, 1);
  float out = 0.0f;
  RowStatus status;
  table.lookup({.deadline_ns = 1}, &id, 1, RowType::kF32, &out, &status);
  CHECK(out == 5.0f && status == RowStatus::kDeadline);
  const std::atomic<bool> cancelled{true};
  table.lookup({.cancelled = &cancelled}, &id, 1, RowType::kF32, &out, &status);
  CHECK(out == 5.0f && status == RowStatus::kDeadline);
  table.lookup({.epoch = 3}, &id, 1, RowType::kF32, &out, &status);
  CHECK(out == 5.0f && status == RowStatus::kUnavailable);
  table.lookup({}, &id, 1, RowType::kF32, &out, &status);
  CHECK(out == 2.0f && status == RowStatus::kHit);
}

template <class Fault, class Call>
bool throws(Call call) {
  try {
    call();
  } catch (const Fault&) {
    return true;
  }
  return false;
}

void faults_are_typed() {
  CHECK(throws<OptionError>([] { Table table({.dim = 0}); }));
  CHECK(throws<OptionError>([] { Table table({.dim = kDimMax + 1}); }));
  CHECK(throws<MemoryExhausted>([] { Table table({.dim = kDimMax, .rows_hint = kRowsMax}); }));
  CHECK(throws<InstructionSetError>([] { choose_kernels("sse9"); }));
  Table half({.dim = 1, .stored = Stored::kF16});
  const std::int64_t ids[2] = {1, 2};
  const float rows[2] = {1.0f, 65520.0f};
  CHECK(throws<RowValueError>([&] { half.upsert(ids, rows, 2); }));
  CHECK(half.size() == 0);
  const std::int32_t falling[3] = {0, 2, 1};
  CHECK(throws<BagError>([&] { check_bags(falling, 2, 1); }));
}

}  // namespace
}  // namespace paramserver

int main() {
  using namespace paramserver;
  hash_spreads_and_is_fixed();
  halves_round_like_the_standard();
  grows_from_nothing_and_keeps_every_id();
  deleting_frees_rows_and_slots();
  row_numbers_map_to_places_of_their_own();
  a_visit_holds_the_turn();
  overlapping_visits_let_the_turn_go_on();
  pools_through_row_source();
  context_is_obeyed();
  faults_are_typed();
  return check_failures == 0 ? 0 : 1;
}
