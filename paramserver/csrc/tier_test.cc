// A table with a cold tier: rows come from base file, spill file and RAM while the keeper moves them, deltas replace
// them and epochs go back; every row that a reader gets is its id's, whole, of the epoch that was asked for.
#include "paramserver/csrc/tier.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

constexpr std::uint32_t kDim = 32;
constexpr std::int64_t kBaseIds = 3000;
constexpr std::int64_t kIds = 4000;  // those from kBaseIds on come with deltas

float value_of(std::int64_t id, std::int64_t sequence) { return static_cast<float>(id * 1000 + sequence); }

std::vector<float> rows_of(const std::vector<std::int64_t>& ids, std::int64_t sequence) {
  std::vector<float> rows;
  for (const std::int64_t id : ids) rows.insert(rows.end(), kDim, value_of(id, sequence));
  return rows;
}

std::string scratch() { return std::filesystem::temp_directory_path().string(); }

// A file of base rows behind one page of something else.
class BaseFile {
 public:
  BaseFile() : path_(scratch() + "/tier_test.XXXXXX") {
    const FileDescriptor file(mkstemp(path_.data()));
    const SlotGeometry geometry = SlotGeometry::of(kDim * sizeof(float));
    std::vector<std::byte> bytes(kPageBytes + geometry.bytes(kBaseIds));
    for (std::int64_t id = 0; id < kBaseIds; ++id) {
      const std::vector<float> row(kDim, value_of(id, 0));
      std::memcpy(bytes.data() + kPageBytes + geometry.offset(static_cast<std::uint64_t>(id)), row.data(),
                  kDim * sizeof(float));
    }
    CHECK(write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    fsync(file.get());
  }
  ~BaseFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::shared_ptr<Table> tiered(const BaseFile& base, std::uint64_t ram_rows, bool keeper) {
  const TierOptions options{.ram_bytes_max = ram_rows * 200, .directory = scratch(), .depth_max = 32,
                            .proposals_max = 512, .keeper = keeper, .base_path = base.path(),
                            .base_offset = kPageBytes};
  auto table = std::make_shared<Table>(
      TableOptions{.dim = kDim, .tier = std::make_unique<SlotTier>(options, kDim * sizeof(float))});
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < kBaseIds; ++id) ids.push_back(id);
  table->add_base(ids.data(), ids.size(), 0, nullptr);
  return table;
}

void apply(Table& table, std::int64_t sequence, const std::vector<std::int64_t>& ids) {
  table.apply(sequence, sequence - 1, ids.data(), rows_of(ids, sequence).data(), ids.size(), nullptr, 0, 0);
}

struct Looked {
  std::vector<float> rows;
  std::vector<RowStatus> status;
};

Looked look(const Table& table, const std::vector<std::int64_t>& ids, const LookupContext& context = {}) {
  Looked got{std::vector<float>(ids.size() * kDim), std::vector<RowStatus>(ids.size())};
  table.lookup(context, ids.data(), ids.size(), RowType::kF32, got.rows.data(), got.status.data());
  return got;
}

bool is_row(const Looked& got, std::size_t i, float value) {
  for (std::uint32_t j = 0; j < kDim; ++j) {
    if (got.rows[i * kDim + j] != value) return false;
  }
  return true;
}

void test_what_is_asked_for_moves_in(const BaseFile& base) {
  const auto table = tiered(base, 100, false);
  std::vector<std::int64_t> hot;
  for (std::int64_t id = 0; id < 60; ++id) hot.push_back(id * 7);
  for (int round = 0; round < 3; ++round) {
    const Looked got = look(*table, hot);
    for (std::size_t i = 0; i < hot.size(); ++i) CHECK(is_row(got, i, value_of(hot[i], 0)));
    CHECK(got.status[0] == (round == 0 ? RowStatus::kCold : RowStatus::kHit));
    table->maintain();
  }
  for (int round = 0; round < 3; ++round) look(*table, hot);
  // Rare ids do not push them out.
  for (std::int64_t first = 500; first < 900; first += 100) {
    std::vector<std::int64_t> rare;
    for (std::int64_t id = first; id < first + 100; ++id) rare.push_back(id);
    look(*table, rare);
    table->maintain();
  }
  const Looked after = look(*table, hot);
  std::size_t hits = 0;
  for (const RowStatus status : after.status) hits += status == RowStatus::kHit;
  CHECK(hits > 55);
  CHECK(table->tier_stats().rows_ram <= table->tier_stats().rows_ram_max);
  CHECK(table->tier_stats().rejected > 0 && table->tier_stats().demoted_dirty == 0);
}

void test_epochs_keep_their_rows(const BaseFile& base) {
  const auto table = tiered(base, 64, false);
  std::vector<std::int64_t> all, even;
  for (std::int64_t id = 0; id < kIds; ++id) all.push_back(id);
  for (std::int64_t id = 0; id < kIds; id += 2) even.push_back(id);
  look(*table, all);
  table->maintain();
  table->publish(1, 0);
  apply(*table, 1, even);
  look(*table, all);
  table->maintain();
  table->publish(2, 1);
  apply(*table, 2, all);
  const auto check = [&](std::uint64_t epoch, auto&& sequence_of) {
    const Looked got = look(*table, all, {.epoch = epoch});
    bool right = true;
    for (std::int64_t id = 0; id < kIds; ++id) {
      const std::int64_t sequence = sequence_of(id);
      const auto i = static_cast<std::size_t>(id);
      right = right && is_row(got, i, sequence < 0 ? 0.0f : value_of(id, sequence));
      right = right && (got.status[i] == RowStatus::kDefault) == (sequence < 0);
    }
    CHECK(right);
  };
  const auto at_1 = [](std::int64_t id) { return id < kBaseIds ? 0 : -1; };
  const auto at_2 = [&](std::int64_t id) { return id % 2 == 0 ? 1 : at_1(id); };
  for (int round = 0; round < 3; ++round) {
    check(1, at_1);
    check(2, at_2);
    table->maintain();
  }
  table->revert(1);
  check(2, at_2);
  apply(*table, 2, all);
  table->publish(3, 2);
  table->retire(1);
  check(2, at_2);
  check(3, [](std::int64_t) { return 2; });
  table->retire(2);
  table->maintain();
  check(0, [](std::int64_t) { return 2; });
  // What only the old epochs could see is free again.
  CHECK(table->tier_stats().spill.slots_live <= static_cast<std::uint64_t>(kIds) + 64);
}

// Hot ids fill RAM, and every delta writes some of them anew while all epochs are held: RAM is for the newest rows.
void test_held_epochs_leave_ram_to_the_newest(const BaseFile& base) {
  constexpr std::int64_t kHot = 200, kEpochs = 31, kWritten = 40;
  const auto table = tiered(base, kHot, false);
  std::vector<std::int64_t> hot;
  for (std::int64_t id = 0; id < kHot; ++id) hot.push_back(id);
  for (int round = 0; round < 4; ++round) {
    look(*table, hot);
    table->maintain();
  }
  const std::uint64_t budget = table->tier_stats().rows_ram_max;
  const auto hits = [&] {
    const Looked got = look(*table, hot);
    return static_cast<std::uint64_t>(std::count(got.status.begin(), got.status.end(), RowStatus::kHit));
  };
  std::vector<std::vector<std::int64_t>> sequences(1, std::vector<std::int64_t>(kHot, 0));
  table->publish(1, 0);
  std::uint64_t fewest = budget;
  for (std::int64_t sequence = 1; sequence < kEpochs; ++sequence) {
    std::vector<std::int64_t> written;
    for (std::int64_t i = 0; i < kWritten; ++i) written.push_back((sequence * 7 + i * 3) % kHot);
    sequences.push_back(sequences.back());
    for (const std::int64_t id : written) sequences.back()[static_cast<std::size_t>(id)] = sequence;
    const std::int64_t gone = (sequence * 7 + 1) % kHot;  // is back with the next delta that writes it
    const std::vector<float> rows = rows_of(written, sequence);
    table->apply(sequence, sequence - 1, written.data(), rows.data(), written.size(), &gone, 1, 0);
    sequences.back()[static_cast<std::size_t>(gone)] = -1;
    table->publish(static_cast<std::uint64_t>(sequence) + 1, sequence);
    // Without a reader or the keeper, what a delta writes stays where it was.
    fewest = std::min(fewest, hits());
    table->maintain();
    CHECK(table->tier_stats().rows_ram <= budget);
    CHECK(table->stats().bytes_rows <= budget * (kDim * sizeof(float) + sizeof(RowNumber)) + 64);
  }
  CHECK(fewest + 20 > std::min<std::uint64_t>(budget, kHot));
  const auto check = [&](std::int64_t from) {
    for (std::int64_t sequence = from; sequence < static_cast<std::int64_t>(sequences.size()); ++sequence) {
      const Looked got = look(*table, hot, {.epoch = static_cast<std::uint64_t>(sequence) + 1});
      bool right = true;
      for (std::size_t i = 0; i < hot.size(); ++i) {
        const std::int64_t written = sequences[static_cast<std::size_t>(sequence)][i];
        right = right && is_row(got, i, written < 0 ? 0.0f : value_of(hot[i], written));
      }
      CHECK(right);
    }
  };
  check(0);
  // An unpublished delta goes again, and brings back rows that lie in the spill file by now.
  apply(*table, kEpochs, hot);
  table->revert(kEpochs - 1);
  check(0);
  for (std::int64_t sequence = 0; sequence < kEpochs - 1; ++sequence) {
    table->retire(static_cast<std::uint64_t>(sequence) + 1);
    if (sequence % 10 == 0) check(sequence + 1);
  }
  table->maintain();
  check(kEpochs - 1);
  // What the old epochs alone could see is free again.
  CHECK(table->tier_stats().spill.slots_live <= static_cast<std::uint64_t>(kHot));
}

void test_caps_and_deadlines(const BaseFile& base) {
  const TierOptions options{.ram_bytes_max = 20'000, .directory = scratch(), .cold_reads_max = 50, .keeper = false,
                            .base_path = base.path(), .base_offset = kPageBytes};
  const auto table = std::make_shared<Table>(
      TableOptions{.dim = kDim, .tier = std::make_unique<SlotTier>(options, kDim * sizeof(float))});
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < 200; ++id) ids.push_back(id);
  table->add_base(ids.data(), ids.size(), 0, nullptr);
  const Looked got = look(*table, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(got.status[i] == (i < 50 ? RowStatus::kCold : RowStatus::kDeadline));
    CHECK(is_row(got, i, i < 50 ? value_of(ids[i], 0) : 0.0f));
  }
  CHECK(table->tier_stats().reads_over == 150);
  const Looked late = look(*table, ids, {.deadline_ns = monotonic_ns() - 1});
  for (const RowStatus status : late.status) CHECK(status == RowStatus::kDeadline);
}

// Readers of all ids beside a writer of deltas and the keeper: values are of a sequence that was in force while the
// reader looked, and never torn.
void test_readers_beside_everything(const BaseFile& base) {
  const auto table = tiered(base, 300, true);
  constexpr std::int64_t kDeltas = 12;
  std::atomic<std::int64_t> applied{0}, published{0};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (std::int64_t t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::uint64_t draw = static_cast<std::uint64_t>(t) * 77 + 1;
      do {
        std::vector<std::int64_t> ids;
        for (int i = 0; i < 400; ++i) {
          draw = draw * 6364136223846793005ULL + 1442695040888963407ULL;
          ids.push_back(static_cast<std::int64_t>((draw >> 33) % (i % 2 == 0 ? kIds : 100)));
        }
        const std::int64_t oldest = published.load();
        const Looked got = look(*table, ids);
        const std::int64_t newest = applied.load();
        for (std::size_t i = 0; i < ids.size(); ++i) {
          if (got.status[i] == RowStatus::kDefault) {
            wrong += ids[i] < kBaseIds || oldest > 0 || !is_row(got, i, 0.0f);
            continue;
          }
          const auto sequence = static_cast<std::int64_t>(got.rows[i * kDim]) - ids[i] * 1000;
          wrong += sequence < oldest || sequence > newest || !is_row(got, i, value_of(ids[i], sequence));
          wrong += got.status[i] != RowStatus::kHit && got.status[i] != RowStatus::kCold;
        }
      } while (!stop.load());
    });
  }
  std::vector<std::int64_t> all;
  for (std::int64_t id = 0; id < kIds; ++id) all.push_back(id);
  table->publish(1, 0);
  for (std::int64_t sequence = 1; sequence <= kDeltas; ++sequence) {
    apply(*table, sequence, all);
    applied.store(sequence);
    table->publish(static_cast<std::uint64_t>(sequence) + 1, sequence);
    table->retire(static_cast<std::uint64_t>(sequence));
    published.store(sequence);
    CHECK(table->stats().bytes_rows < 400 * kDim * sizeof(float) + 16384);
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(table->tier_stats().reads_failed == 0 && table->tier_stats().reads_mismatched == 0);
}

}  // namespace
}  // namespace paramserver

int main() {
  const paramserver::BaseFile base;
  paramserver::test_what_is_asked_for_moves_in(base);
  paramserver::test_epochs_keep_their_rows(base);
  paramserver::test_held_epochs_leave_ram_to_the_newest(base);
  paramserver::test_caps_and_deadlines(base);
  paramserver::test_readers_beside_everything(base);
  return paramserver::check_failures != 0;
}
