// The spill file: what is written is read back from where it says, holes are used again, and a full file takes nothing.
#include "paramserver/csrc/slot_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

std::string scratch() { return std::filesystem::temp_directory_path().string(); }

// The rows of ids: every byte of a row is the id's lowest.
struct Batch {
  Batch(std::int64_t first, std::size_t n, std::size_t row_bytes) {
    for (std::size_t i = 0; i < n; ++i) ids.push_back(first + static_cast<std::int64_t>(i));
    for (const std::int64_t id : ids) bytes.emplace_back(row_bytes, static_cast<std::byte>(id));
    for (const auto& row : bytes) rows.push_back(row.data());
    slots.resize(n);
  }
  std::vector<std::int64_t> ids;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<const std::byte*> rows;
  std::vector<SlotNumber> slots;
};

bool holds(const SlotFile& file, SlotNumber slot, std::int64_t id, std::size_t row_bytes) {
  const SlotGeometry& geometry = file.geometry();
  void* page = nullptr;
  if (posix_memalign(&page, kPageBytes, geometry.block_bytes()) != 0) return false;
  const ssize_t got = pread(file.descriptor(), page, geometry.block_bytes(),
                            static_cast<off_t>(geometry.block_of(slot) * geometry.block_bytes()));
  const std::byte* at = static_cast<const std::byte*>(page) + geometry.offset_in_block(slot);
  bool same = got == static_cast<ssize_t>(geometry.block_bytes()) && SlotFile::id_of(at) == id;
  for (std::size_t j = 0; same && j < row_bytes; ++j) same = SlotFile::row_of(at)[j] == static_cast<std::byte>(id);
  std::free(page);
  return same;
}

void test_rows_are_where_it_says() {
  for (const std::size_t row_bytes : {4u, 128u, 2040u, 2048u, 4088u, 4092u, 16384u}) {
    for (const bool direct : {true, false}) {
      SlotFile file({.directory = scratch(), .row_bytes = row_bytes, .direct = direct});
      Batch one(-3, 1, row_bytes);
      Batch many(100, 777, row_bytes);
      file.write(one.ids.data(), one.rows.data(), 1, one.slots.data());
      file.write(many.ids.data(), many.rows.data(), many.ids.size(), many.slots.data());
      CHECK(holds(file, one.slots[0], -3, row_bytes));
      for (std::size_t i = 0; i < many.ids.size(); ++i) CHECK(holds(file, many.slots[i], many.ids[i], row_bytes));
      CHECK(file.stats().slots_live == 778);
    }
  }
}

// Rows come and go at random: no live slot is ever overwritten, and the file stays within twice what is live.
void test_holes_are_used_again() {
  constexpr std::size_t kRow = 120;
  SlotFile file({.directory = scratch(), .row_bytes = kRow});
  std::mt19937_64 random(5);
  std::map<SlotNumber, std::int64_t> live;
  for (std::int64_t round = 0; round < 60; ++round) {
    Batch batch(round * 1000, 1000, kRow);
    file.write(batch.ids.data(), batch.rows.data(), batch.ids.size(), batch.slots.data());
    for (std::size_t i = 0; i < batch.ids.size(); ++i) CHECK(live.emplace(batch.slots[i], batch.ids[i]).second);
    for (auto at = live.begin(); at != live.end();) {
      const bool drop = live.size() > 6000 && random() % 8 == 0;
      if (drop) file.release(at->first);
      at = drop ? live.erase(at) : std::next(at);
    }
  }
  for (const auto& [slot, id] : live) CHECK(holds(file, slot, id, kRow));
  CHECK(file.stats().slots_live == live.size());
  CHECK(file.stats().bytes < 2 * (live.size() + 2000) * file.geometry().slot_bytes + 64 * kPageBytes);
}

template <class Fault, class Call>
bool throws(Call&& call) {
  try {
    call();
  } catch (const Fault&) {
    return true;
  }
  return false;
}

void test_a_full_file_takes_nothing_and_recovers() {
  constexpr std::size_t kRow = 248;  // 16 slots a page
  SlotFile file({.directory = scratch(), .row_bytes = kRow, .bytes_max = 8 * kPageBytes});
  Batch half(0, 70, kRow);
  file.write(half.ids.data(), half.rows.data(), half.ids.size(), half.slots.data());
  Batch more(1000, 70, kRow);
  const auto write = [&] { file.write(more.ids.data(), more.rows.data(), more.ids.size(), more.slots.data()); };
  CHECK(throws<SlotFileFull>(write));
  CHECK(file.stats().slots_live == 70 && file.stats().writes_refused == 1);
  for (std::size_t i = 0; i < 70; ++i) CHECK(holds(file, half.slots[i], half.ids[i], kRow));
  for (std::size_t i = 0; i < 32; ++i) file.release(half.slots[i]);
  write();
  for (std::size_t i = 0; i < 70; ++i) CHECK(holds(file, more.slots[i], more.ids[i], kRow));
  for (std::size_t i = 32; i < 70; ++i) CHECK(holds(file, half.slots[i], half.ids[i], kRow));
}

// The system's own refusal, by the limit on the size of a file.
void test_the_systems_refusal_is_typed() {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4 * kPageBytes, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  {
    SlotFile file({.directory = scratch(), .row_bytes = 4000});
    Batch batch(0, 6, 4000);
    CHECK(throws<SlotFileFull>([&] { file.write(batch.ids.data(), batch.rows.data(), 6, batch.slots.data()); }));
    CHECK(file.stats().slots_live == 0);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(throws<SlotFileError>([] { SlotFile({.directory = "/nowhere/at/all", .row_bytes = 4}); }));
}

}  // namespace
}  // namespace paramserver

int main() {
  paramserver::test_rows_are_where_it_says();
  paramserver::test_holes_are_used_again();
  paramserver::test_a_full_file_takes_nothing_and_recovers();
  paramserver::test_the_systems_refusal_is_typed();
  return paramserver::check_failures != 0;
}
