// Readers beside a writer: every row a reader gets holds one number in all its places, and versions of a row never go
// back. The writer updates, deletes, inserts and so grows and rebuilds the index, and rows are reused.
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

}  // namespace
}  // namespace paramserver

int main() {
  paramserver::readers_beside_a_writer();
  return paramserver::check_failures == 0 ? 0 : 1;
}
