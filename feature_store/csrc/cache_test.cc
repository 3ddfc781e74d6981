#include "feature_store/csrc/cache.h"

#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "feature_store/csrc/check.h"
#include "feature_store/csrc/errors.h"

using namespace feature_store;

TEST(cache_finds_every_pattern_of_64_bits) {
  std::vector<std::int64_t> keys{0, -1, 1, std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t i = 0; i < 5000; ++i) keys.push_back(i * 1024 + 7);
  const auto cache = Cache::build(keys.data(), keys.size(), {});
  std::vector<std::uint32_t> found(keys.size());
  cache->find(keys.data(), keys.size(), found.data());
  for (std::size_t i = 0; i < keys.size(); ++i) CHECK(found[i] == i);
  const std::int64_t absent[2] = {2, -2};
  cache->find(absent, 2, found.data());
  CHECK(found[0] == cache->rows() && found[1] == cache->rows());
}

TEST(cache_refuses_a_key_twice) {
  const std::int64_t keys[3] = {5, -9, 5};
  try {
    Cache::build(keys, 3, {});
    CHECK(!"refused");
  } catch (const DataError& error) {
    CHECK(std::string_view(error.what()).find("id 5 stands in row 0 and again in row 2") != std::string_view::npos);
  }
}

TEST(cache_holds_defaults_behind_the_rows) {
  const std::int64_t keys[2] = {10, 20};
  const std::int64_t offsets[3] = {0, 3, 3}, default_offsets[2] = {0, 2};
  const std::uint8_t present[2] = {1, 0};
  CellsView cells;
  cells.dtype = DType::kBytes;
  cells.values = "abc";
  cells.value_bytes = 3;
  cells.byte_offsets = offsets;
  cells.present = present;
  cells.default_values = "zz";
  cells.default_bytes = 2;
  cells.default_byte_offsets = default_offsets;
  const auto cache = Cache::build(keys, 2, {cells});
  const StoredColumn column = cache->column(0);
  CHECK(!column.all_present && column.present(0) && !column.present(1) && !column.present(2));
  CHECK(column.byte_offsets[2] == 3 && column.byte_offsets[3] == 5);
  CHECK(std::memcmp(column.values, "abczz", 5) == 0);
}
