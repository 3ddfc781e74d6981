#include "feature_store/csrc/extractor.h"

#include <cstring>
#include <thread>

#include "feature_store/csrc/check.h"
#include "feature_store/csrc/errors.h"
#include "feature_store/csrc/fp_modes.h"

using namespace feature_store;

namespace {

constexpr std::int64_t kKeys[3] = {100, -1, 7};
constexpr float kPrices[3] = {1.5f, 1e-40f, 9.0f};
constexpr std::int64_t kTags[6] = {1, 2, 3, 4, 5, 6};
constexpr std::int64_t kTagOffsets[4] = {0, 1, 1, 6};
constexpr std::uint8_t kPresent[3] = {1, 1, 1};
constexpr float kDefaultPrice = -7.0f;

std::shared_ptr<const Cache> small_cache() {
  CellsView price, tags;
  price.values = kPrices;
  price.value_bytes = sizeof kPrices;
  price.present = tags.present = kPresent;
  price.default_values = &kDefaultPrice;
  price.default_bytes = sizeof kDefaultPrice;
  tags.dtype = DType::kI64;
  tags.ragged = true;
  tags.width = 5;
  tags.values = kTags;
  tags.value_bytes = sizeof kTags;
  tags.row_offsets = kTagOffsets;
  return Cache::build(kKeys, 3, {price, tags});
}

Extractor small_extractor(Isa isa) {
  SlotProgram price, bucket, tags, padded;
  price.spec = {"price", DType::kF32, Layout::kDense, 1};
  bucket.spec = {"bucket", DType::kI64, Layout::kDense, 1};
  bucket.boundaries = {0.0f, 1.5f};
  tags.spec = {"tags", DType::kI64, Layout::kRagged, 5};
  tags.load.feature = padded.load.feature = 1;
  padded.spec = {"padded", DType::kI64, Layout::kPadded, 3};
  padded.load.cuts = {{2, true}};
  padded.pad_i64 = -5;
  return Extractor({{"price", DType::kF32, Layout::kDense, 1}, {"tags", DType::kI64, Layout::kRagged, 5}},
                   {price, bucket, tags, padded}, small_cache(), {0, 1}, isa);
}

struct Outs {
  float price[600];
  std::int64_t bucket[600], tags[3000], padded[1800];
  std::int32_t offsets[601], lengths[600];
  SlotOut slots[4] = {{price, nullptr, nullptr}, {bucket, nullptr, nullptr}, {tags, offsets, nullptr},
                      {padded, nullptr, lengths}};
};

}  // namespace

TEST(gather_reads_stored_rows_and_defaults) {
  for (const Isa isa : isas_available()) {
    const Extractor extractor = small_extractor(isa);
    const std::int64_t keys[4] = {7, 8, 100, 7};
    Outs outs;
    std::uint8_t known[4];
    GatherStats stats;
    extractor.gather(keys, 4, nullptr, outs.slots, known, &stats);
    CHECK(outs.price[0] == 9.0f && outs.price[1] == -7.0f && outs.price[2] == 1.5f);
    CHECK(outs.bucket[0] == 2 && outs.bucket[1] == 0 && outs.bucket[2] == 2);
    CHECK(outs.offsets[0] == 0 && outs.offsets[1] == 5 && outs.offsets[2] == 5 && outs.offsets[4] == 11);
    CHECK(outs.tags[5] == 1 && outs.tags[10] == 6);
    CHECK(outs.lengths[0] == 2 && outs.lengths[1] == 0 && outs.lengths[2] == 1);
    const std::int64_t padded[12] = {5, 6, -5, -5, -5, -5, 1, -5, -5, 5, 6, -5};
    CHECK(std::memcmp(outs.padded, padded, sizeof padded) == 0);
    CHECK(known[0] == 1 && known[1] == 0 && stats.cells == 8 && stats.cells_present == 6);
  }
}

TEST(gather_crosses_tiles) {
  const Extractor extractor = small_extractor(Isa::kScalar);
  std::vector<std::int64_t> keys(600);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = kKeys[i % 3];
  static Outs outs;
  extractor.gather(keys.data(), keys.size(), nullptr, outs.slots, nullptr, nullptr);
  CHECK(outs.offsets[600] == 200 * 6 && outs.price[599] == 9.0f && outs.tags[1199] == 6 && outs.padded[1798] == 6);
}

TEST(gather_takes_a_column_of_the_request) {
  const Extractor extractor = small_extractor(Isa::kScalar);
  const std::int64_t keys[2] = {7, 8};
  char unaligned[9];
  const float prices[2] = {0.5f, 2.0f};
  std::memcpy(unaligned + 1, prices, sizeof prices);
  ColumnView columns[2];
  columns[0] = {true, unaligned + 1, nullptr, nullptr};
  Outs outs;
  GatherStats stats;
  extractor.gather(keys, 2, columns, outs.slots, nullptr, &stats);
  CHECK(outs.price[0] == 0.5f && outs.price[1] == 2.0f && outs.bucket[0] == 1 && outs.bucket[1] == 2);
  CHECK(stats.cells == 4 && stats.cells_present == 3);
}

TEST(gather_of_nothing_closes_the_offsets) {
  const Extractor extractor = small_extractor(Isa::kScalar);
  Outs outs;
  outs.offsets[0] = 99;
  extractor.gather(nullptr, 0, nullptr, outs.slots, nullptr, nullptr);
  CHECK(outs.offsets[0] == 0);
}

TEST(gather_ignores_the_caller_threads_float_modes) {
#if defined(__SSE2__)
  SlotProgram log;
  log.spec = {"log", DType::kF32, Layout::kDense, 1};
  log.float_ops = {{FloatOp::Kind::kLog1p, 0, 0}};
  const Extractor extractor({{"price", DType::kF32, Layout::kDense, 1}}, {log}, small_cache(), {0}, Isa::kScalar);
  const std::int64_t key = -1;
  float out = 0;
  const SlotOut slot{&out, nullptr, nullptr};
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;
  _mm_setcsr(flushing);
  extractor.gather(&key, 1, nullptr, &slot, nullptr, nullptr);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(after == flushing);
  CHECK(out == 1e-40f);
#endif
}

TEST(gather_from_many_threads_gives_the_same_bytes) {
  const Extractor extractor = small_extractor(isas_available().back());
  std::vector<std::int64_t> keys(600);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int64_t>(i % 9) - 1;
  std::vector<Outs> outs(4);
  std::vector<std::thread> threads;
  for (Outs& out : outs) {
    threads.emplace_back([&] { extractor.gather(keys.data(), keys.size(), nullptr, out.slots, nullptr, nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Outs& out : outs) {
    CHECK(std::memcmp(out.price, outs[0].price, sizeof out.price) == 0);
    CHECK(std::memcmp(out.padded, outs[0].padded, sizeof out.padded) == 0);
    CHECK(std::memcmp(out.offsets, outs[0].offsets, sizeof out.offsets) == 0);
  }
}

TEST(extractor_refuses_parts_that_do_not_fit) {
  SlotProgram wrong;
  wrong.spec = {"wrong", DType::kI64, Layout::kDense, 1};
  try {
    Extractor({{"price", DType::kF32, Layout::kDense, 1}}, {wrong}, small_cache(), {0}, Isa::kScalar);
    CHECK(!"refused");
  } catch (const ProgrammerError&) {
  }
}
