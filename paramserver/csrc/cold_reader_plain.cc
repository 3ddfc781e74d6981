#include "paramserver/csrc/cold_reader_plain.h"

#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/slot_file.h"

namespace paramserver {

double plain_parallel_read(const std::string& path, const std::uint64_t* offsets, std::size_t n, std::size_t bytes,
                           unsigned threads) {
  bool direct = false;
  const FileDescriptor file = open_slots(path, true, direct);
  if (!direct) throw SlotFileError(path + " cannot be read past the page cache: put it on another file system");
  const Region buffers(threads * bytes, false);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto run = [&](unsigned thread) {
    std::byte* to = buffers.data() + thread * bytes;
    for (std::size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
      const ssize_t got = pread(file.get(), to, bytes, static_cast<off_t>(offsets[i]));
      if (got != static_cast<ssize_t>(bytes)) failed.store(true);
    }
  };
  const std::int64_t start = monotonic_ns();
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; ++thread) running.emplace_back(run, thread);
  for (std::thread& thread : running) thread.join();
  const std::int64_t end = monotonic_ns();
  if (failed.load()) throw SlotFileError("cannot read some of the blocks of " + path);
  return static_cast<double>(end - start) * 1e-9;
}

}  // namespace paramserver
