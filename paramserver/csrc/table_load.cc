// How a table takes rows that are stored already: a snapshot's, byte for byte.
#include <algorithm>
#include <cstring>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

// Ids whose slots are fetched ahead.
constexpr std::size_t kLoadGroup = 32;
constexpr std::size_t kRoomEvery = 4096;

}  // namespace

void Table::load_default_row(const std::byte* row) noexcept {
  std::memcpy(state_region_.data() + sizeof(TableState), row, row_bytes());
}

void Table::load_rows(const std::int64_t* ids, const std::byte* const* rows, std::size_t n,
                      const std::uint32_t* times) {
  std::lock_guard<std::mutex> lock(writer_);
  check_takes_upserts();
  if (tier_ != nullptr) return load_rows_tiered(ids, rows, n, times);
  const Batch batch{kBaseVersion, nullptr, 0, 1};
  for (std::size_t first = 0; first < n; first += kLoadGroup) {
    if (first % kRoomEvery == 0) make_room(std::min(kRoomEvery, n - first));
    const std::size_t end = std::min(n, first + kLoadGroup);
    for (std::size_t i = first; i < end; ++i) __builtin_prefetch(index_->view().home(ids[i]), 1);
    for (std::size_t i = first; i < end; ++i) {
      const RowNumber number = rows_.allocate();
      std::memcpy(rows_.at(number), rows[i], row_bytes());
      const std::uint32_t version = times == nullptr ? kBaseVersion : base_version_of(times[i]);
      change(batch, index_->place(ids[i]), ids[i], RowState::of(RowKind::kRam, number, version));
    }
  }
  show_rows();
  note_peak();
}

}  // namespace paramserver
