// Readers beside a writer: every row a reader gets holds one number in all its places, and versions of a row never go
// back. The writer updates, deletes, inserts and so grows and rebuilds the index, and rows are reused.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

constexpr std::uint32_t kDim = 256;
constexpr std::int64_t kSteady = 64;     // ids that are updated all the time
constexpr std::int64_t kChurning = 512;  // ids that come and go at each version
constexpr int kVersions = 400;
constexpr int kReaders = 3;

struct Seen {
  std::uint64_t torn = 0;
  std::uint64_t backwards = 0;
  std::uint64_t strangers = 0;
  std::uint64_t reads = 0;
};

bool is_torn(const float* row) {
  for (std::uint32_t j = 1; j < kDim; ++j) {
    if (row[j] != row[0]) return true;
  }
  return false;
}

// A churning id's row says version + id * 1000, so that a row of another id is noticed.
void check_churning(const float* rows, const RowStatus* status, std::int64_t first_id, Seen& seen) {
  for (std::int64_t i = 0; i < kChurning; ++i) {
    const float value = rows[i * kDim];
    const bool own = value >= static_cast<float>((first_id + i) * 1000) &&
                     value <= static_cast<float>((first_id + i) * 1000 + kVersions);
    seen.torn += is_torn(rows + i * kDim);
    seen.strangers += status[i] == RowStatus::kHit ? !own : value != 0.0f;
  }
}

void read(const Table& table, const std::atomic<bool>& stop, Seen& seen) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < kSteady + kChurning; ++i) ids.push_back(i);
  std::vector<float> rows(ids.size() * kDim);
  std::vector<RowStatus> status(ids.size());
  std::vector<float> newest(kSteady, 0.0f);
  do {
    table.lookup({}, ids.data(), ids.size(), RowType::kF32, rows.data(), status.data());
    for (std::int64_t i = 0; i < kSteady; ++i) {
      const float value = rows[static_cast<std::size_t>(i) * kDim];
      seen.torn += is_torn(&rows[static_cast<std::size_t>(i) * kDim]);
      seen.backwards += value < newest[static_cast<std::size_t>(i)];
      newest[static_cast<std::size_t>(i)] = value;
    }
    check_churning(&rows[kSteady * kDim], &status[kSteady], kSteady, seen);
    ++seen.reads;
  } while (!stop.load(std::memory_order_relaxed));
}

void write(Table& table, int version) {
  std::vector<std::int64_t> ids;
  std::vector<float> rows;
  const auto put = [&](std::int64_t id, float value) {
    ids.push_back(id);
    rows.insert(rows.end(), kDim, value);
  };
  for (std::int64_t i = 0; i < kSteady; ++i) put(i, static_cast<float>(version));
  for (std::int64_t i = version % 2; i < kChurning; i += 2) {
    put(kSteady + i, static_cast<float>((kSteady + i) * 1000 + version));
  }
  // Ids that nobody reads make deleted slots, and so rebuilds of the index.
  for (std::int64_t i = 0; i < 64; ++i) put((std::int64_t{version} << 20) - i, -1.0f);
  table.upsert(ids.data(), rows.data(), ids.size());
  table.erase(ids.data() + kSteady, ids.size() - kSteady);
}

void readers_beside_a_writer() {
  Table table({.dim = kDim});
  std::atomic<bool> stop{false};
  std::vector<Seen> seen(kReaders);
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] { read(table, stop, seen[static_cast<std::size_t>(r)]); });
  }
  for (int version = 1; version <= kVersions; ++version) write(table, version);
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  for (const Seen& one : seen) {
    CHECK(one.torn == 0);
    CHECK(one.backwards == 0);
    CHECK(one.strangers == 0);
    CHECK(one.reads > 0);
  }
  CHECK(table.size() == kSteady);
  // Whatever the readers held up comes back into use once they are gone: further versions write 14 MB of rows, and take
  // no new memory but for what the index grows and shrinks by.
  for (int version = 1; version <= 4; ++version) write(table, kVersions + version);
  const std::uint64_t bytes = table.stats().bytes();
  for (int version = 5; version <= 40; ++version) write(table, kVersions + version);
  CHECK(table.stats().bytes() < bytes + (std::uint64_t{1} << 20));
}

// --- Epochs ---
//
// Sequence s writes the ids i with (i + s) % 3 == 0, deletes those with (i + s) % 7 == 0, and each row says which
// sequence wrote it, so what an id must be at any sequence is known without a table. Some deltas are applied with other
// content first and reverted, which no reader may ever see.
constexpr std::int64_t kEpochIds = 1500;
constexpr std::uint32_t kEpochDim = 32;
constexpr int kSequences = 120;
constexpr float kAbandoned = 5e6f;

// What an id's row says at a sequence, -1 when it has none.
float expected(std::int64_t id, std::int64_t sequence) {
  for (std::int64_t s = sequence; s > 0; --s) {
    if ((id + s) % 7 == 0) return -1.0f;
    if ((id + s) % 3 == 0) return static_cast<float>(s * 10'000 + id);
  }
  return static_cast<float>(id);
}

void apply_sequence(Table& table, std::int64_t sequence, float abandoned) {
  std::vector<std::int64_t> ids, deletes;
  std::vector<float> rows;
  for (std::int64_t id = 0; id < kEpochIds; ++id) {
    if ((id + sequence) % 7 == 0) deletes.push_back(id);
    if ((id + sequence) % 3 != 0) continue;
    ids.push_back(id);
    rows.insert(rows.end(), kEpochDim, abandoned != 0.0f ? abandoned : static_cast<float>(sequence * 10'000 + id));
  }
  // Ids that nobody reads make the index grow beside readers.
  ids.push_back(1'000'000 + sequence);
  rows.insert(rows.end(), kEpochDim, 0.0f);
  table.apply(sequence, sequence - 1, ids.data(), rows.data(), ids.size(), deletes.data(), deletes.size(), 0);
}

struct EpochFaults {
  std::uint64_t torn = 0;
  std::uint64_t wrong = 0;
  std::uint64_t lost = 0;
  std::uint64_t reads = 0;
};

// Epoch e shows sequence e - 1. An epoch that was held when the lookup ended was held all along.
void read_epochs(const Table& table, const std::atomic<std::uint64_t>& oldest, const std::atomic<bool>& stop,
                 std::uint64_t step, EpochFaults& faults) {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < kEpochIds; ++id) ids.push_back(id);
  std::vector<float> rows(ids.size() * kEpochDim);
  std::vector<RowStatus> status(ids.size());
  for (std::uint64_t turn = step; !stop.load(); turn += step) {
    const std::uint64_t first = oldest.load();
    const std::uint64_t newest = table.epoch();
    const std::uint64_t epoch = first + turn % (newest - std::min(first, newest) + 1);
    table.lookup({.epoch = epoch}, ids.data(), ids.size(), RowType::kF32, rows.data(), status.data());
    const bool held = oldest.load() <= epoch;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float* row = &rows[i * kEpochDim];
      for (std::uint32_t j = 1; j < kEpochDim; ++j) faults.torn += row[j] != row[0];
      if (status[i] == RowStatus::kUnavailable) {
        faults.lost += held;
        continue;
      }
      const float want = expected(ids[i], static_cast<std::int64_t>(epoch) - 1);
      faults.wrong += status[i] == RowStatus::kHit ? row[0] != want : want != -1.0f;
    }
    ++faults.reads;
  }
}

void epochs_beside_readers() {
  Table table({.dim = kEpochDim});
  std::vector<std::int64_t> ids;
  std::vector<float> rows;
  for (std::int64_t id = 0; id < kEpochIds; ++id) {
    ids.push_back(id);
    rows.insert(rows.end(), kEpochDim, static_cast<float>(id));
  }
  table.upsert(ids.data(), rows.data(), ids.size());
  table.publish(1, 0);
  std::atomic<std::uint64_t> oldest{1};
  std::atomic<bool> stop{false};
  std::vector<EpochFaults> faults(kReaders);
  std::vector<std::thread> readers;
  for (std::uint64_t r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] { read_epochs(table, oldest, stop, r + 1, faults[r]); });
  }
  for (std::int64_t sequence = 1; sequence <= kSequences; ++sequence) {
    if (sequence % 5 == 0) {
      apply_sequence(table, sequence, kAbandoned);
      table.revert(sequence - 1);
    }
    apply_sequence(table, sequence, 0.0f);
    table.publish(static_cast<std::uint64_t>(sequence) + 1, sequence);
    // Four epochs are held. Readers are told before one goes.
    if (sequence < 4) continue;
    const std::uint64_t retired = oldest.fetch_add(1);
    table.retire(retired);
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  for (const EpochFaults& one : faults) {
    CHECK(one.torn == 0);
    CHECK(one.wrong == 0);
    CHECK(one.lost == 0);
    CHECK(one.reads > 0);
  }
  CHECK(table.epochs().size() == 4);
}

}  // namespace
}  // namespace paramserver

int main() {
  paramserver::readers_beside_a_writer();
  paramserver::epochs_beside_readers();
  return paramserver::check_failures == 0 ? 0 : 1;
}
