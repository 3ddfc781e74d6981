// Feature source, table and executable whose every value is a formula of its key, so that a test can say what a
// request must have read. conftest.py computes the same in NumPy.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "feature_store/csrc/feature_source.h"
#include "lambda_svc/csrc/executable.h"
#include "paramserver/csrc/row_source.h"

namespace lambda_svc::test {

using feature_store::ColumnView;
using feature_store::FeatureSpec;
using feature_store::GatherStats;
using feature_store::Layout;
using feature_store::SlotOut;
using feature_store::SlotSpec;
using paramserver::LookupContext;
using paramserver::RowStatus;

// Cell c of key k: f32 k % 1000 + c / 8, i64 k * 100 + c; a padded or ragged row has |k| % (width + 1) values. Negative
// keys are unknown. A dense f32 column given for feature i replaces slot i.
class FakeFeatures final : public feature_store::FeatureSource {
 public:
  explicit FakeFeatures(std::vector<SlotSpec> slots) : slots_(std::move(slots)) {
    for (const SlotSpec& slot : slots_) {
      features_.push_back({slot.name, slot.dtype, slot.layout == Layout::kDense ? Layout::kDense : Layout::kRagged,
                           slot.width});
    }
  }
  const std::vector<SlotSpec>& slots() const noexcept override { return slots_; }
  const std::vector<FeatureSpec>& features() const noexcept override { return features_; }

  void gather(const std::int64_t* keys, std::size_t n, const ColumnView* columns, const SlotOut* outs,
              std::uint8_t* known, GatherStats* stats) const noexcept override {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      std::int32_t filled = 0;
      for (std::size_t i = 0; i < n; ++i) filled = write_row(slots_[s], outs[s], keys[i], i, filled);
      if (columns[s].given && slots_[s].layout == Layout::kDense) {
        std::memcpy(outs[s].values, columns[s].values, n * slots_[s].width * 4);
      }
    }
    stats->cells = n * slots_.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (known != nullptr) known[i] = keys[i] >= 0;
      stats->cells_present += keys[i] >= 0 ? slots_.size() : 0;
    }
  }

 private:
  static std::int32_t write_row(const SlotSpec& slot, const SlotOut& out, std::int64_t key, std::size_t row,
                                std::int32_t filled) {
    const auto width = static_cast<std::int32_t>(slot.width);
    const auto length = static_cast<std::int32_t>((key < 0 ? -key : key) % (width + 1));
    const bool ragged = slot.layout == Layout::kRagged;
    const std::int32_t values = ragged ? length : width;
    const std::size_t first = ragged ? filled : row * slot.width;
    for (std::int32_t c = 0; c < values; ++c) {
      const bool pad = slot.layout == Layout::kPadded && c >= length;
      if (slot.dtype == feature_store::DType::kI64) {
        static_cast<std::int64_t*>(out.values)[first + c] = pad ? 0 : key * 100 + c;
      } else {
        static_cast<float*>(out.values)[first + c] = pad ? 0.f : static_cast<float>(key % 1000) + c * 0.125f;
      }
    }
    if (slot.layout == Layout::kPadded) out.lengths[row] = length;
    if (!ragged) return 0;
    if (row == 0) out.offsets[0] = 0;
    out.offsets[row + 1] = filled + length;
    return filled + length;
  }

  std::vector<SlotSpec> slots_;
  std::vector<FeatureSpec> features_;
};

// Element d of id x is x % 97 + d / 4; ids divisible by 10 are unknown and get the default row, all -1.
class FakeTable final : public paramserver::RowSource {
 public:
  explicit FakeTable(std::uint32_t dim) : dim_(dim) {}
  std::uint32_t dim() const noexcept override { return dim_; }

  void lookup(const LookupContext&, const std::int64_t* ids, std::size_t n, paramserver::RowType, void* out,
              RowStatus* status) const noexcept override {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::uint32_t d = 0; d < dim_; ++d) static_cast<float*>(out)[i * dim_ + d] = value(ids[i], d);
      status[i] = ids[i] % 10 == 0 ? RowStatus::kDefault : RowStatus::kHit;
    }
  }
  void lookup_pooled(const LookupContext&, const std::int64_t* ids, const std::int32_t* offsets, std::size_t bags,
                     paramserver::Pooling mode, const float*, paramserver::RowType, void* out,
                     RowStatus* status) const noexcept override {
    auto* rows = static_cast<float*>(out);
    std::fill_n(rows, bags * dim_, 0.f);
    for (std::size_t bag = 0; bag < bags; ++bag) {
      const std::int32_t count = offsets[bag + 1] - offsets[bag];
      for (std::int32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        for (std::uint32_t d = 0; d < dim_; ++d) rows[bag * dim_ + d] += value(ids[i], d);
        status[i] = ids[i] % 10 == 0 ? RowStatus::kDefault : RowStatus::kHit;
      }
      if (mode == paramserver::Pooling::kMean && count > 0) {
        for (std::uint32_t d = 0; d < dim_; ++d) rows[bag * dim_ + d] /= static_cast<float>(count);
      }
    }
  }
  static float value(std::int64_t id, std::uint32_t d) {
    return id % 10 == 0 ? -1.f : static_cast<float>(id % 97) + static_cast<float>(d) * 0.25f;
  }

 private:
  std::uint32_t dim_;
};

// Head h of a row is the sum of the row's feeds plus h, packed or not; an output of a fixed shape shares the sum out
// among its values. `before` runs first in every run().
class FakeExecutable final : public Executable {
 public:
  FakeExecutable(std::vector<TensorSpec> inputs, std::size_t heads) : inputs_(std::move(inputs)) {
    for (std::size_t h = 0; h < heads; ++h) outputs_.push_back({"head" + std::to_string(h), DType::kF32, {-1}});
  }
  FakeExecutable(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

  void run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
           RunStats* stats) const override {
    if (before) before(feeds, release, rows);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < inputs_.size(); ++i) sum += row_sum(inputs_[i], feeds[i], row);
      for (std::size_t o = 0; o < outputs_.size(); ++o) write(outputs_[o], outs[o], sum, o, row, rows);
    }
  }

  std::function<void(const Feed*, const FeedRelease&, std::size_t)> before;

 private:
  static void write(const TensorSpec& spec, float* out, double sum, std::size_t output, std::size_t row,
                    std::size_t rows) {
    const bool open = spec.shape.back() < 0;
    const std::size_t values = values_of(spec, open ? 1 : rows);
    for (std::size_t v = 0; v < values; ++v) {
      if (open) out[v * rows + row] = static_cast<float>(sum + static_cast<double>(output + v));
      else out[v] = static_cast<float>(sum / static_cast<double>(values));
    }
  }

  static double row_sum(const TensorSpec& spec, const Feed& feed, std::size_t row) {
    const bool shared = spec.shape[0] == 1;
    std::size_t values = 1;
    for (int d = 1; d < feed.rank; ++d) values *= static_cast<std::size_t>(feed.dims[d]);
    double sum = 0;
    for (std::size_t v = 0; v < values; ++v) {
      const std::size_t at = (shared ? 0 : row * values) + v;
      if (spec.dtype == DType::kI64) {
        sum += static_cast<double>(static_cast<const std::int64_t*>(feed.data)[at]);
      } else if (spec.dtype == DType::kI32) {
        sum += static_cast<const std::int32_t*>(feed.data)[at];
      } else {
        sum += static_cast<const float*>(feed.data)[at];
      }
    }
    return sum;
  }

  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
};

}  // namespace lambda_svc::test
