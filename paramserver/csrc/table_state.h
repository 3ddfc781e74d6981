// Everything that readers of a table reach, in blocks that are addressed by offsets from one base (memory.h), so that
// any process that has them mapped can read.
//
//   TableState, fixed:    what the table is, offsets of row segments, offset of the directory in force, reader gate
//   Directory, replaced:  the index, the epochs and the undo indexes at one moment; never changed once in force
//
// Versions of rows over time: applying a delta writes new states into the main index, and puts the old state of each id
// that it touched into an undo index of its own. A reader at version v takes the main index's state if that was written
// by v or before, and else asks the undo indexes of the deltas after v, in their order: the first that has the id tells
// its state as of v. So staged deltas are not seen, epochs are overlays, and readers at the newest pay one comparison.
// Thread-safety: one writer; readers inside a visit of the gate. Ownership: the writer's; blocks that are no longer in
// force are freed when the gate says so.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/id_index.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/quiescence.h"
#include "paramserver/csrc/row_state.h"

namespace paramserver {

inline constexpr std::uint64_t kTableStateMagic = 0x3153544c42415453ULL;  // "STABLTS1"
inline constexpr std::size_t kSegmentsMax = 40;

struct EpochEntry {
  std::uint64_t epoch;
  std::uint64_t rows;     // live at that epoch
  std::uint32_t version;  // of the sequence that it shows
  std::uint32_t unused;
};

struct UndoEntry {
  std::uint64_t slots;  // offset
  std::uint64_t lines;
  std::uint32_t version;  // of the delta that it undoes
  std::uint32_t unused;
};

struct Directory {
  std::uint64_t slots;     // offset of the main index
  std::uint64_t lines;
  std::uint64_t times;     // offset of uint32[versions]: when each version was written, never falling; 0: no expiry
  std::uint32_t versions;
  std::uint32_t newest;    // version that epoch 0 shows
  std::uint32_t epochs;    // EpochEntry[epochs] follow, ascending
  std::uint32_t undos;     // UndoEntry[undos] follow them, ascending by version

  const EpochEntry* epoch_entries() const noexcept { return reinterpret_cast<const EpochEntry*>(this + 1); }
  const UndoEntry* undo_entries() const noexcept {
    return reinterpret_cast<const UndoEntry*>(epoch_entries() + epochs);
  }
  EpochEntry* epoch_entries() noexcept { return reinterpret_cast<EpochEntry*>(this + 1); }
  UndoEntry* undo_entries() noexcept { return reinterpret_cast<UndoEntry*>(epoch_entries() + epochs); }
};

struct TableState {
  std::uint64_t magic = kTableStateMagic;
  std::uint32_t dim = 0;
  Stored stored = Stored::kF32;
  std::uint32_t row_bytes = 0;
  std::uint32_t first_shift = 0;      // segment 0 holds 2^first_shift rows (row_store.h)
  double ttl_s = 0.0;                 // 0: rows do not expire
  std::uint64_t default_row = 0;      // offset, as stored
  std::atomic<std::uint64_t> directory{0};  // offset of the one in force
  std::array<std::atomic<std::uint64_t>, kSegmentsMax> segments{};  // offsets
  ReaderGate gate;
};

// The address of an offset in this process.
inline const std::byte* at_offset(const std::byte* base, std::uint64_t offset) noexcept {
  return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) + offset);
}

// Rows by number. Cheap to copy; valid as long as the table.
struct RowsView {
  explicit RowsView(const TableState& state, const std::byte* base) noexcept
      : base(base), segments(state.segments.data()),
        first(at_offset(base, segments[0].load(std::memory_order_relaxed))), row_bytes(state.row_bytes),
        first_shift(static_cast<int>(state.first_shift)), first_rows(RowNumber{1} << first_shift) {}

  const std::byte* at(RowNumber row) const noexcept {
    if (row < first_rows) [[likely]] return first + row * row_bytes;
    const int k = std::bit_width(row >> first_shift);
    const RowNumber start = first_rows << (k - 1);
    return at_offset(base, segments[k].load(std::memory_order_relaxed)) + (row - start) * row_bytes;
  }

  const std::byte* base;
  const std::atomic<std::uint64_t>* segments;
  const std::byte* first;
  std::size_t row_bytes;
  int first_shift;
  RowNumber first_rows;
};

}  // namespace paramserver
