// Processes beside each other on one shared table: the owner applies, publishes, retires, reverts and grows, while
// others read what they can compute, are killed, and outlive it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/mapped_memory.h"
#include "paramserver/csrc/mapped_table.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

constexpr std::uint32_t kDim = 96;
constexpr std::int64_t kSteady = 600;    // ids that every epoch has
constexpr std::int64_t kChurning = 300;  // ids that the even epochs have
constexpr std::int64_t kStrangers = 20;  // ids that none has
constexpr std::int64_t kGrowth = 40;     // ids that each epoch adds for good
constexpr std::uint64_t kEpochs = 400;
constexpr int kReaders = 3;
constexpr int kVictims = 25;

struct Seen {
  std::atomic<std::uint64_t> torn{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> backwards{0};
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> retries{0};
  std::atomic<bool> stop{false};
};

std::string shared_path(const char* name) {
  const char* folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  return std::string(folder) + "/lambda_svc_" + name + "_" + std::to_string(getpid());
}

std::shared_ptr<Table> owned(const std::string& path, std::int64_t turn_ns, std::uint32_t dim) {
  const auto memory = MappedMemory::create({.path = path, .turn_ns = turn_ns});
  auto table = std::make_shared<Table>(TableOptions{.dim = dim, .memory = memory});
  memory->show(table->state_offset(), "test", 0);
  return table;
}

float value_of(std::int64_t id, std::uint64_t epoch) {
  return static_cast<float>(id * 1000 + static_cast<std::int64_t>(epoch));
}

void apply(Table& table, std::uint64_t epoch, std::int64_t salt = 0) {
  std::vector<std::int64_t> ids, deletes;
  for (std::int64_t id = 0; id < kSteady; ++id) ids.push_back(id);
  for (std::int64_t id = kSteady; id < kSteady + kChurning; ++id) (epoch % 2 == 0 ? ids : deletes).push_back(id);
  const std::int64_t first = 10'000 + static_cast<std::int64_t>(epoch) * kGrowth;
  for (std::int64_t id = first; id < first + kGrowth; ++id) ids.push_back(id);
  std::vector<float> rows;
  for (const std::int64_t id : ids) rows.insert(rows.end(), kDim, value_of(id + salt, epoch));
  const auto sequence = static_cast<std::int64_t>(epoch);
  table.apply(sequence, sequence - 1, ids.data(), rows.data(), ids.size(), deletes.data(), deletes.size(), 0);
}

// Every answer of an epoch must be that epoch's, row by row; an epoch that went away is unavailable, never another's.
void check_answer(std::uint64_t epoch, const std::vector<std::int64_t>& ids, const std::vector<float>& rows,
                  const std::vector<RowStatus>& status, Seen& seen) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* row = &rows[i * kDim];
    bool torn = false;
    for (std::uint32_t j = 1; j < kDim; ++j) torn = torn || row[j] != row[0];
    seen.torn += torn;
    if (status[i] == RowStatus::kUnavailable) continue;
    const bool here = ids[i] < kSteady || (ids[i] < kSteady + kChurning && epoch % 2 == 0);
    const bool right = here ? status[i] == RowStatus::kHit && row[0] == value_of(ids[i], epoch)
                            : status[i] == RowStatus::kDefault && row[0] == 0.0f;
    seen.wrong += !right;
    ++seen.answers;
  }
}

void read(const std::string& path, Seen& seen) {
  const MappedTable table(path);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < kSteady + kChurning + kStrangers; ++id) ids.push_back(id);
  std::vector<float> rows(ids.size() * kDim);
  std::vector<RowStatus> status(ids.size());
  std::uint64_t newest = 0;
  while (!seen.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t epoch = table.epoch();
    seen.backwards += epoch < newest;
    newest = epoch;
    if (epoch == 0) continue;
    table.lookup({.epoch = epoch}, ids.data(), ids.size(), RowType::kF32, rows.data(), status.data());
    check_answer(epoch, ids, rows, status, seen);
  }
  seen.retries += table.retries();
}

template <class Body>
pid_t in_child(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(300);
  body();
  _exit(check_failures == 0 ? 0 : 1);
}

bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Memory that processes share before they part.
template <class T>
T* shared_by_fork() {
  void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : new (at) T;
}

// Turns without a lower bound: memory comes into use again as fast as it can, and looks fail as often as they can.
void readers_beside_an_owner() {
  const std::string path = shared_path("readers");
  Seen& seen = *shared_by_fork<Seen>();
  const auto table = owned(path, 0, kDim);
  std::vector<pid_t> readers;
  for (int r = 0; r < kReaders; ++r) readers.push_back(in_child([&] { read(path, seen); }));
  pid_t victim = -1;
  for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    // A delta that is undone before anybody could see it, then the epoch's own.
    if (epoch % 16 == 0) {
      apply(*table, epoch, 777);
      table->revert(static_cast<std::int64_t>(epoch) - 1);
    }
    apply(*table, epoch);
    table->publish(epoch, static_cast<std::int64_t>(epoch));
    if (epoch > 2) table->retire(epoch - 2);
    // Readers that are killed wherever they happen to be.
    if (epoch % (kEpochs / kVictims) == 0) {
      if (victim > 0) {
        kill(victim, SIGKILL);
        CHECK(waitpid(victim, nullptr, 0) == victim);
      }
      victim = in_child([&] { read(path, seen); });
    }
  }
  seen.stop.store(true);
  for (const pid_t reader : readers) CHECK(ended_well(reader));
  if (victim > 0) CHECK(ended_well(victim));
  CHECK(seen.torn == 0);
  CHECK(seen.wrong == 0);
  CHECK(seen.backwards == 0);
  CHECK(seen.answers > 0);
  std::printf("mapped readers: %lu answers, %lu looks begun anew, %lu torn, %lu wrong\n", seen.answers.load(),
              seen.retries.load(), seen.torn.load(), seen.wrong.load());
  // What nobody sees any more was used again: the file holds two or three epochs, not all of them.
  CHECK(table->stats().bytes() < std::uint64_t{64} << 20);
  munmap(&seen, sizeof seen);
}

float first_number(const MappedTable& table, std::int64_t id) {
  std::vector<float> row(table.dim());
  table.lookup({}, &id, 1, RowType::kF32, row.data(), nullptr);
  return row[0];
}

void write_one(Table& table, std::int64_t id, float value) {
  const std::vector<float> row(table.dim(), value);
  table.upsert(&id, row.data(), 1);
}

void readers_outlive_their_owner() {
  const std::string path = shared_path("death");
  auto& ready = *shared_by_fork<std::atomic<bool>>();
  const pid_t owner = in_child([&] {
    const auto table = owned(path, kSharedTurn_ns, 8);
    write_one(*table, 5, 42.0f);
    ready.store(true);
    for (float value = 0.0f;; value += 1.0f) write_one(*table, 6, value);
  });
  while (!ready.load()) usleep(1000);
  const MappedTable table(path);
  CHECK(table.owner_alive() && first_number(table, 5) == 42.0f);
  bool locked = false;
  try {
    owned(path, 0, 8);
  } catch (const SharedFileLocked&) {
    locked = true;
  }
  CHECK(locked && table.owner_alive());
  kill(owner, SIGKILL);
  CHECK(waitpid(owner, nullptr, 0) == owner);
  CHECK(!table.owner_alive() && first_number(table, 5) == 42.0f && first_number(table, 7) == 0.0f);
  CHECK(first_number(MappedTable(path), 5) == 42.0f);
  {
    const auto next = owned(path, 0, 8);
    write_one(*next, 5, 43.0f);
    const MappedTable anew(path);
    CHECK(anew.owner_alive() && first_number(anew, 5) == 43.0f);
    CHECK(!table.owner_alive() && first_number(table, 5) == 42.0f);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  munmap(&ready, sizeof ready);
}

// A limit on the file's size stands for a file system without space.
void no_space_is_an_error_and_reads_go_on() {
  const std::string path = shared_path("space");
  const pid_t owner = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{std::uint64_t{16} << 20, std::uint64_t{16} << 20};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const auto table = owned(path, 0, 256);
    const MappedTable mapped(path);
    bool full = false;
    std::int64_t id = 0;
    try {
      for (; id < 100'000; ++id) write_one(*table, id, static_cast<float>(id));
    } catch (const MemoryExhausted& error) {
      full = std::string(error.what()).find("no space") != std::string::npos;
    }
    CHECK(full && id > 1000);
    for (std::int64_t i = 0; i < id; ++i) CHECK(first_number(mapped, i) == static_cast<float>(i));
  });
  CHECK(ended_well(owner));
}

void memory_that_comes_back_is_used_again() {
  const std::string path = shared_path("memory");
  const auto memory = MappedMemory::create({.path = path, .turn_ns = 0});
  const auto a = memory->take(5000, false), b = memory->take(4096, false), c = memory->take(3 << 20, true);
  CHECK(a.bytes == 8192 && b.data == a.data + 8192 && c.bytes == 4 << 20);
  CHECK((c.data - memory->base()) % static_cast<std::ptrdiff_t>(kHugePageBytes) == 0);
  a.data[0] = std::byte{1};
  memory->give_back(a);
  memory->give_back(b);
  const auto again = memory->take(12288, false);
  CHECK(again.data == a.data && again.data[0] == std::byte{0});
  memory->give_back(c);
  const auto parts = memory->take(2 << 20, true), rest = memory->take(2 << 20, true);
  CHECK(parts.data == c.data && rest.data == c.data + (2 << 20));
  bool refused = false;
  try {
    memory->take(kSharedReserveBytes, false);
  } catch (const MemoryExhausted&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace paramserver

int main() {
  using namespace paramserver;
  memory_that_comes_back_is_used_again();
  no_space_is_an_error_and_reads_go_on();
  readers_outlive_their_owner();
  readers_beside_an_owner();
  return check_failures == 0 ? 0 : 1;
}
