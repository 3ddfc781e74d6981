// The read path of a table: how ids become rows, over whatever memory the table lies in.
//
// Thread-safety: everything from any number of threads, beside one writer. Ownership: points into a TableState, which
// must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/cold_tier.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/status_counters.h"
#include "paramserver/csrc/table_state.h"
#include "paramserver/csrc/table_view.h"

namespace paramserver {

class TableReader {
 public:
  // `base`: where the table's memory lies in this process. `tier`: null for a table that is all in RAM.
  TableReader(const TableState& state, const std::byte* base, const Kernels& kernels, const ColdTier* tier) noexcept
      : state_(state), base_(base), kernels_(kernels), tier_(tier) {}

  // As RowSource. One call is answered from one epoch, even if that is retired before the call ends.
  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept;
  // Rows as they are stored.
  void lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n,
                     std::byte* out /*[n, row_bytes]*/, RowStatus* status /*[n] or null*/) const noexcept;

  const std::byte* default_row() const noexcept { return at_offset(base_, state_.default_row); }
  RowsView rows() const noexcept { return RowsView(state_, base_); }
  const StatusCounters& counters() const noexcept { return counters_; }

 private:
  // Calls take(rows, first, n) for the rows of all ids, in their order.
  template <class Take>
  void each(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
            Take&& take) const noexcept;
  template <class Take>
  void resolve(const TableView& view, const std::int64_t* ids, std::size_t n, RowStatus* status,
               StatusTally& tally, Take&& take) const noexcept;
  template <class Take>
  void resolve_cold(const LookupContext& context, const TableView& view, const std::int64_t* ids, std::size_t n,
                    RowStatus* status, StatusTally& tally, ColdScratch& scratch, Take&& take) const noexcept;

  const TableState& state_;
  const std::byte* base_;
  const Kernels& kernels_;
  const ColdTier* tier_;
  mutable StatusCounters counters_;
};

}  // namespace paramserver
