// The one value of a binary column that came over the wire, whose offsets may lie at any address: the transport leaves
// a batch where its bytes arrived, and reading them in place as int32 would be undefined.
//
// Thread-safety: a pure function. Ownership: the view is into the column's memory.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace paramserver::flight {

// `column` is a binary column of one value that ValidateFull() found good.
inline std::string_view binary_value(const arrow::Array& column) {
  const arrow::ArrayData& data = *column.data();
  std::int32_t ends[2];
  std::memcpy(ends, data.buffers[1]->data() + data.offset * sizeof(std::int32_t), sizeof ends);
  if (ends[0] == ends[1]) return {};
  const auto* values = reinterpret_cast<const char*>(data.buffers[2]->data());
  return {values + ends[0], static_cast<std::size_t>(ends[1] - ends[0])};
}

}  // namespace paramserver::flight
