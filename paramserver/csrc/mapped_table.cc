#include "paramserver/csrc/mapped_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/clock.h"

namespace paramserver {
namespace {

// Ids of one look: few enough that their copies stay in the nearer caches, and that a look is over in a small part of a
// turn.
constexpr std::size_t kLookIds = 256;
constexpr std::size_t kLookBytes = std::size_t{64} << 10;
// With turns that are no shorter than an owner makes them, one retry is rare and two are not seen; so many mean that
// the file is not what it says.
constexpr int kLooksMax = 10'000;
// How often a call begins, each time at the newest epoch then; after that the rest of it is unavailable.
constexpr int kBegunMax = 5;

// What was copied since `turn` was in force is whole as long as this is true (mapped_header.h).
bool still_good(const ReaderGate& gate, std::uint64_t turn) noexcept {
#ifdef PARAMSERVER_BROKEN_UNCHECKED_LOOKS
  // Only the test that proves the test of mapped readers can fail is built with this.
  return true;
#endif
  std::atomic_thread_fence(std::memory_order_acquire);
  return gate.turn() < turn + ReaderGate::kTurnsToQuiet;
}

std::uint64_t turn_now(const ReaderGate& gate) noexcept {
  const std::uint64_t turn = gate.turn();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return turn;
}

RowStatus refusal(const LookupContext& context) noexcept {
  if (context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed)) return RowStatus::kDeadline;
  const bool bounded = context.deadline_ns != std::numeric_limits<std::int64_t>::max();
  return bounded && monotonic_ns() >= context.deadline_ns ? RowStatus::kDeadline : RowStatus::kHit;
}

// Rows beyond RAM are the owner's alone.
RowStatus status_of(RowState state) noexcept {
  if (state.kind() == RowKind::kRam) return RowStatus::kHit;
  if (state.live()) return RowStatus::kUnavailable;
  return state.deltas() != 0 ? RowStatus::kFiltered : RowStatus::kDefault;
}

}  // namespace

// A call's own memory, used again from look to look.
struct MappedTable::Scratch {
  std::vector<std::byte> directory;
  std::vector<std::byte> copies;       // [kLookIds, row_bytes]
  const std::byte* rows[kLookIds];     // into `copies`, or the default row
  RowStatus status[kLookIds];
  std::uint64_t epoch = 0;             // that was read
  bool known = true;                   // false: the owner does not hold the epoch asked for
};

MappedTable::MappedTable(const std::string& path, const Kernels* kernels_wanted)
    : kernels_(kernels_wanted == nullptr ? kernels() : *kernels_wanted) {
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw SharedFileError(path + ": cannot open the file of a shared table: " + std::strerror(errno));
  try {
    struct stat found {};
    alignas(SharedHeader) std::byte first[sizeof(SharedHeader)];
    if (fstat(fd_, &found) != 0 || pread(fd_, first, sizeof first, 0) != static_cast<ssize_t>(sizeof first)) {
      throw SharedFileDamaged(path + ": is no shared table, or one that its owner has not finished");
    }
    base_ = first;
    check_header(path, static_cast<std::uint64_t>(found.st_size));
    mapped_bytes_ = header().reserve_bytes;
    void* at = mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (at == MAP_FAILED) {
      throw SharedFileError(path + ": cannot map " + std::to_string(mapped_bytes_) + " bytes of addresses (" +
                            std::strerror(errno) + "): raise the limit of virtual memory");
    }
    base_ = static_cast<const std::byte*>(at);
    state_ = reinterpret_cast<const TableState*>(base_ + header().state);
    const bool sane = state_->magic == kTableStateMagic && state_->dim >= 1 && state_->dim <= kDimMax &&
                      static_cast<int>(state_->stored) < kStoredTypes &&
                      state_->row_bytes == stored_row_bytes(state_->stored, state_->dim) && state_->first_shift < 38 &&
                      within_file(state_->default_row, state_->row_bytes);
    if (!sane) {
      munmap(const_cast<std::byte*>(base_), mapped_bytes_);
      throw SharedFileDamaged(path + ": is damaged: start its owner again, which makes it anew");
    }
    madvise(const_cast<std::byte*>(base_), mapped_bytes_, MADV_HUGEPAGE);
    const std::byte* row = base_ + state_->default_row;
    default_row_.assign(row, row + state_->row_bytes);
  } catch (...) {
    close(fd_);
    throw;
  }
}

void MappedTable::check_header(const std::string& path, std::uint64_t file_bytes) const {
  const SharedHeader& shown = header();
  if (shown.magic != kSharedMagic) {
    throw SharedFileDamaged(path + ": is no shared table, or one that its owner has not finished");
  }
  if (shown.format != kSharedFormat || shown.state_bytes != sizeof(TableState)) {
    throw SharedFileDamaged(path + ": has format " + std::to_string(shown.format) + " and a state of " +
                            std::to_string(shown.state_bytes) + " bytes, expected " + std::to_string(kSharedFormat) +
                            " and " + std::to_string(sizeof(TableState)) + ": use the owner's release of this package");
  }
  const std::uint64_t used = shown.file_bytes.load(std::memory_order_acquire);
  const bool sane = used <= file_bytes && used <= shown.reserve_bytes && shown.reserve_bytes < std::uint64_t{1} << 47 &&
                    shown.name_bytes <= kSharedNameBytesMax && shown.state % alignof(TableState) == 0 &&
                    within_file(shown.state, sizeof(TableState));
  if (!sane) throw SharedFileDamaged(path + ": is damaged: start its owner again, which makes it anew");
}

MappedTable::~MappedTable() {
  munmap(const_cast<std::byte*>(base_), mapped_bytes_);
  close(fd_);
}

bool MappedTable::within_file(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::uint64_t end = header().file_bytes.load(std::memory_order_acquire);
  return offset <= end && bytes <= end - offset;
}

const std::byte* MappedTable::row_at(RowNumber row) const noexcept {
  const int shift = static_cast<int>(state_->first_shift);
  const auto k = static_cast<std::size_t>(std::bit_width(row >> shift));
  if (k >= kSegmentsMax) return nullptr;
  const RowNumber start = k == 0 ? 0 : RowNumber{1} << (shift + static_cast<int>(k) - 1);
  const std::uint64_t segment = state_->segments[k].load(std::memory_order_acquire);
  const std::uint64_t offset = segment + (row - start) * state_->row_bytes;
  return segment != 0 && within_file(offset, state_->row_bytes) ? base_ + offset : nullptr;
}

// Once the copy is known to be of a directory that was in force, its offsets lead to places that exist; what is there
// by then may be something else, which still_good() tells.
bool MappedTable::copy_directory(std::uint64_t turn, std::vector<std::byte>* directory) const noexcept {
  const std::uint64_t offset = state_->directory.load(std::memory_order_seq_cst);
  if (offset % alignof(Directory) != 0 || !within_file(offset, sizeof(Directory))) return false;
  Directory head;
  std::memcpy(&head, base_ + offset, sizeof head);
  if (!still_good(state_->gate, turn)) return false;
  const std::uint64_t bytes = sizeof head + std::uint64_t{head.epochs} * sizeof(EpochEntry) +
                              std::uint64_t{head.undos} * sizeof(UndoEntry);
  if (!within_file(offset, bytes)) return false;
  try {
    directory->resize(bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  std::memcpy(directory->data(), base_ + offset, bytes);
  if (!still_good(state_->gate, turn)) return false;
  std::memcpy(directory->data(), &head, sizeof head);
  const auto index_is_here = [this](std::uint64_t slots, std::uint64_t lines) {
    constexpr std::uint64_t kLineBytes = IndexView::kLineSlots * sizeof(IndexSlot);
    return lines != 0 && lines <= mapped_bytes_ / kLineBytes && slots % 64 == 0 &&
           within_file(slots, lines * kLineBytes);
  };
  const auto* copy = reinterpret_cast<const Directory*>(directory->data());
  bool sane = index_is_here(head.slots, head.lines);
  for (std::uint32_t i = 0; i < head.undos; ++i) {
    sane = sane && index_is_here(copy->undo_entries()[i].slots, copy->undo_entries()[i].lines);
  }
  return sane && (state_->ttl_s <= 0.0 || within_file(head.times, std::uint64_t{head.versions} * 4));
}

bool MappedTable::copy_rows(std::uint64_t epoch, const std::int64_t* ids, std::size_t n,
                            Scratch& scratch) const noexcept {
  const std::uint64_t turn = turn_now(state_->gate);
  if (!copy_directory(turn, &scratch.directory)) return false;
  const TableView view(*state_, base_, reinterpret_cast<const Directory*>(scratch.directory.data()), epoch);
  scratch.known = view.known();
  scratch.epoch = view.epoch();
  if (!view.known()) return still_good(state_->gate, turn);
  const IndexView& index = view.index();
  const std::size_t row_bytes = state_->row_bytes;
  for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(index.home(ids[i]));
  for (std::size_t i = 0; i < n; ++i) {
    RowState state = index.find(ids[i]);
    if (!view.shows_ram(state)) state = view.as_of(ids[i], state);
    scratch.status[i] = status_of(state);
    scratch.rows[i] = scratch.status[i] == RowStatus::kHit ? row_at(state.value()) : default_row_.data();
    if (scratch.rows[i] == nullptr) return false;
    for (std::size_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(scratch.rows[i] + byte);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (scratch.status[i] != RowStatus::kHit) continue;
    std::byte* const copy = scratch.copies.data() + i * row_bytes;
    std::memcpy(copy, scratch.rows[i], row_bytes);
    scratch.rows[i] = copy;
  }
  return !view.outdated() && still_good(state_->gate, turn);
}

template <class Take>
void MappedTable::each(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
                       Take&& take) const noexcept {
  const std::size_t look_ids = std::clamp<std::size_t>(kLookBytes / state_->row_bytes, 8, kLookIds);
  Scratch scratch;
  bool room = true;
  try {
    scratch.copies.resize(std::min(n, look_ids) * state_->row_bytes);
  } catch (const std::bad_alloc&) {
    room = false;
  }
  StatusTally tally{};
  std::uint64_t epoch = context.epoch;
  int begun = 1;
  for (std::size_t first = 0; first < n;) {
    const std::size_t count = std::min(look_ids, n - first);
    RowStatus why = room ? refusal(context) : RowStatus::kUnavailable;
    for (int looks = 0; why == RowStatus::kHit && !copy_rows(epoch, ids + first, count, scratch); ++looks) {
      retries_.fetch_add(1, std::memory_order_relaxed);
      std::this_thread::yield();
      why = looks < kLooksMax ? refusal(context) : RowStatus::kUnavailable;
    }
    // As a Table, a call is of one epoch: one without an epoch begins anew when its own is retired before it ends.
    if (why == RowStatus::kHit && !scratch.known && context.epoch == 0 && epoch != 0 && begun < kBegunMax) {
      ++begun;
      tally = {};
      epoch = 0;
      first = 0;
      continue;
    }
    if (why == RowStatus::kHit && !scratch.known) why = RowStatus::kUnavailable;
    if (why == RowStatus::kHit) {
      epoch = scratch.epoch;
    } else {
      std::fill_n(scratch.rows, count, default_row_.data());
      std::fill_n(scratch.status, count, why);
    }
    for (std::size_t i = 0; i < count; ++i) ++tally[static_cast<std::size_t>(scratch.status[i])];
    if (status != nullptr) std::copy_n(scratch.status, count, status + first);
    take(scratch.rows, first, count);
    first += count;
  }
  counters_.add(tally);
}

void MappedTable::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type,
                         void* out, RowStatus* status) const noexcept {
  const Kernels::CopyRows copy = kernels_.copy[static_cast<int>(stored())][static_cast<int>(out_type)];
  const std::size_t row_bytes = dim() * row_type_bytes(out_type);
  each(context, ids, n, status, [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
    copy(rows, count, dim(), static_cast<std::byte*>(out) + first * row_bytes);
  });
}

void MappedTable::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                                std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                                RowStatus* status) const noexcept {
  if (bags == 0) return;
  BagWriter writer(kernels_, stored(), dim(), offsets, bags, mode, weights, out_type, out);
  each(context, ids, static_cast<std::size_t>(offsets[bags]), status,
       [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
         if (first == 0) writer.restart();
         writer.take(rows, first, count);
       });
  writer.close();
}

void MappedTable::lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n, std::byte* out,
                                RowStatus* status) const noexcept {
  each(context, ids, n, status, [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + (first + i) * row_bytes(), rows[i], row_bytes());
  });
}

// A directory that was in force, empty when the file has none.
std::vector<std::byte> MappedTable::directory() const {
  std::vector<std::byte> copy;
  for (int looks = 0; looks < kLooksMax; ++looks) {
    if (copy_directory(turn_now(state_->gate), &copy)) return copy;
    std::this_thread::yield();
  }
  return {};
}

std::vector<std::pair<std::uint64_t, std::int64_t>> MappedTable::epochs() const {
  const std::vector<std::byte> copy = directory();
  std::vector<std::pair<std::uint64_t, std::int64_t>> all;
  if (copy.empty()) return all;
  const auto* shown = reinterpret_cast<const Directory*>(copy.data());
  for (std::uint32_t i = 0; i < shown->epochs; ++i) {
    const EpochEntry& entry = shown->epoch_entries()[i];
    all.emplace_back(entry.epoch, header().base_sequence + std::int64_t{entry.version} - std::int64_t{kBaseVersion});
  }
  return all;
}

std::uint64_t MappedTable::epoch() const noexcept {
  const auto all = epochs();
  return all.empty() ? 0 : all.back().first;
}

bool MappedTable::holds(std::uint64_t epoch) const {
  const auto all = epochs();
  return epoch == 0 || std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == epoch; });
}

void MappedTable::default_row(float* out) const noexcept {
  const std::byte* row = default_row_.data();
  kernels_.copy[static_cast<int>(stored())][0](&row, 1, dim(), out);
}

// The owner's lock ends with its process.
bool MappedTable::owner_alive() const noexcept {
  struct flock whole {};
  whole.l_type = F_RDLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(fd_, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace paramserver
