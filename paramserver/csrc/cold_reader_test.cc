// The cold reader: every slot of a batch is delivered or its outcome says why not, on either engine, past the page
// cache or through it, from many threads at once.
#include "paramserver/csrc/cold_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/slot_file.h"
#include "paramserver/csrc/slot_geometry.h"

namespace paramserver {
namespace {

// A file of `slots` slots, each full of its own number.
class NumberedFile {
 public:
  NumberedFile(std::uint32_t slot_bytes, std::uint64_t slots)
      : geometry(SlotGeometry::of(slot_bytes)), content_bytes(slot_bytes), slots_(slots),
        path_((std::filesystem::temp_directory_path() / "cold_reader_test.XXXXXX").string()) {
    const FileDescriptor file(mkstemp(path_.data()));
    std::vector<std::byte> bytes(geometry.bytes(slots));
    for (std::uint64_t slot = 0; slot < slots; ++slot) {
      for (std::uint32_t at = 0; at + 4 <= slot_bytes; at += 4) {
        const auto number = static_cast<std::uint32_t>(slot);
        std::memcpy(bytes.data() + geometry.offset(slot) + at, &number, 4);
      }
    }
    CHECK(write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    fsync(file.get());
  }
  ~NumberedFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::uint64_t slots() const { return slots_; }
  const SlotGeometry geometry;
  const std::uint32_t content_bytes;

 private:
  std::uint64_t slots_;
  std::string path_;
};

// A batch of slots drawn at random, doubles and neighbours included.
struct Batch {
  Batch(const NumberedFile& file, int fd, std::size_t n, std::uint64_t seed) : bytes_of_slot(file.content_bytes) {
    std::mt19937_64 random(seed);
    memory.resize(n * bytes_of_slot);
    for (std::size_t i = 0; i < n; ++i) {
      numbers.push_back(i % 5 == 4 ? numbers.back() + (numbers.back() + 1 < file.slots()) : random() % file.slots());
      add(file.geometry, fd, numbers.back());
    }
  }

  void add(const SlotGeometry& geometry, int fd, std::uint64_t slot) {
    reads.push_back({.fd = fd,
                     .block_bytes = static_cast<std::uint32_t>(geometry.block_bytes()),
                     .block_offset = geometry.block_of(slot) * geometry.block_bytes(),
                     .offset_in_block = static_cast<std::uint32_t>(geometry.offset_in_block(slot)),
                     .bytes = bytes_of_slot,
                     .to = memory.data() + reads.size() * bytes_of_slot});
  }

  std::size_t count(ReadOutcome outcome) const {
    std::size_t n = 0;
    for (const SlotRead& read : reads) n += read.outcome == outcome;
    return n;
  }

  // Every slot that is said to have been read holds its number from end to end.
  bool right() const {
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i].outcome != ReadOutcome::kDone) continue;
      for (std::uint32_t at = 0; at + 4 <= bytes_of_slot; at += 4) {
        std::uint32_t number;
        std::memcpy(&number, reads[i].to + at, 4);
        if (number != numbers[i]) return false;
      }
    }
    return true;
  }

  std::uint32_t bytes_of_slot;
  std::vector<std::byte> memory;
  std::vector<std::uint64_t> numbers;
  std::vector<SlotRead> reads;
  ColdReader::Scratch scratch;
};

ColdReader::Options engine(bool uring, unsigned depth_max = 64) {
  return {.depth_max = depth_max, .queues_max = 3, .threads = 4, .uring = uring};
}

void test_every_slot_arrives(bool uring) {
  ColdReader reader(engine(uring));
  for (const std::uint32_t slot_bytes : {4u, 128u, 136u, 2048u, 4096u, 4100u, 16392u}) {
    const NumberedFile file(slot_bytes, slot_bytes > 4096 ? 300 : 20000);
    for (const bool direct : {true, false}) {
      bool is_direct = false;
      const FileDescriptor fd = open_slots(file.path(), direct, is_direct);
      Batch batch(file, fd.get(), 1500, slot_bytes);
      const std::uint64_t before = reader.stats().reads;
      reader.read(batch.reads.data(), batch.reads.size(), {}, batch.scratch);
      CHECK(batch.count(ReadOutcome::kDone) == batch.reads.size());
      CHECK(batch.right());
      CHECK(reader.stats().reads - before <= batch.reads.size() * 4 / 5);
    }
  }
  CHECK(reader.stats().in_flight == 0 && reader.stats().slots == 14 * 1500);
}

void test_trouble_is_told_slot_by_slot(bool uring) {
  const NumberedFile file(128, 4000);
  bool is_direct = false;
  const FileDescriptor fd = open_slots(file.path(), true, is_direct);
  ColdReader reader(engine(uring));
  Batch batch(file, fd.get(), 600, 3);
  for (std::size_t i = 0; i < 600; i += 10) {
    batch.reads[i].block_offset += file.geometry.bytes(file.slots());  // past the end
    batch.reads[i + 1].fd = 1'000'000;                                 // no such file
  }
  reader.read(batch.reads.data(), batch.reads.size(), {}, batch.scratch);
  CHECK(batch.count(ReadOutcome::kDone) == 480 && batch.right());
  CHECK(batch.count(ReadOutcome::kFailed) == 120 && reader.stats().slots_failed == 120);
}

void test_deadline_and_cancel(bool uring) {
  const NumberedFile file(2048, 20000);
  bool is_direct = false;
  const FileDescriptor fd = open_slots(file.path(), true, is_direct);
  ColdReader reader(engine(uring, 2));
  Batch batch(file, fd.get(), 5000, 4);
  const auto read = [&](ReadLimits limits) {
    reader.read(batch.reads.data(), batch.reads.size(), limits, batch.scratch);
  };
  read({.deadline_ns = monotonic_ns() - 1});
  CHECK(batch.count(ReadOutcome::kUnread) == 5000);
  std::atomic<bool> cancelled{true};
  read({.cancelled = &cancelled});
  CHECK(batch.count(ReadOutcome::kUnread) == 5000);
  CHECK(reader.stats().reads == 0);
  // Deadlines that pass in the middle leave reads in flight, which must never arrive in a later batch's rows.
  for (std::int64_t ns = 1000; ns < 20'000'000; ns = ns * 3 / 2) {
    read({.deadline_ns = monotonic_ns() + ns});
    CHECK(batch.count(ReadOutcome::kFailed) == 0 && batch.right());
  }
  read({});
  CHECK(batch.count(ReadOutcome::kDone) == 5000 && batch.right());
}

void test_many_threads(bool uring) {
  const NumberedFile file(136, 20000);
  bool is_direct = false;
  const FileDescriptor fd = open_slots(file.path(), true, is_direct);
  ColdReader reader(engine(uring, 16));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      Batch batch(file, fd.get(), 200, t);
      for (int round = 0; round < 8; ++round) {
        const bool hurried = round % 2 == 1;
        ReadLimits limits;
        if (hurried) limits.deadline_ns = monotonic_ns() + 300'000;
        reader.read(batch.reads.data(), batch.reads.size(), limits, batch.scratch);
        wrong += !batch.right() || (!hurried && batch.count(ReadOutcome::kDone) != 200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace paramserver

int main() {
  for (const bool uring : {true, false}) {
    if (uring && paramserver::make_uring_queue(1) == nullptr) {
      std::fprintf(stderr, "cold_reader_test: this kernel refuses io_uring; its queue is not tested here\n");
      continue;
    }
    paramserver::test_every_slot_arrives(uring);
    paramserver::test_trouble_is_told_slot_by_slot(uring);
    paramserver::test_deadline_and_cancel(uring);
    paramserver::test_many_threads(uring);
  }
  return paramserver::check_failures != 0;
}
