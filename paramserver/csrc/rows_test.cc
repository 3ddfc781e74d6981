// Row formats and kernels without Python: every instruction set gives the bits of the scalar one, for every stored
// type, and answers may pass 2^31 elements and 2^32 bytes.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/half.h"
#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/table.h"
#include "paramserver/csrc/table_state.h"

namespace paramserver {
namespace {

constexpr std::size_t kRows = 3;
constexpr float kWeights[kRows] = {0.5f, -3.0f, 1e-3f};

const std::vector<const Kernels*>& kernels_here() {
  static const std::vector<const Kernels*> here = [] {
    std::vector<const Kernels*> all;
    for (const char* name : {"scalar", "avx2", "avx512"}) {
      try {
        all.push_back(&choose_kernels(name));
      } catch (const InstructionSetError&) {
        std::printf("this CPU does not run %s: untested here\n", name);
      }
    }
    return all;
  }();
  return here;
}

std::uint32_t random_bits(std::uint64_t& state) {
  state = mix(static_cast<std::int64_t>(state + 1));
  return static_cast<std::uint32_t>(state >> 32);
}

// Rows at odd addresses, of every bit pattern; int8 rows have any codes and finite ends.
std::vector<std::byte> stored_rows(Stored stored, std::size_t dim, std::vector<const std::byte*>* rows) {
  std::uint64_t state = dim;
  const std::size_t bytes = stored_row_bytes(stored, dim);
  std::vector<std::byte> memory(kRows * (bytes + 1) + 1);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random_bits(state));
  for (std::size_t i = 0; i < kRows; ++i) {
    std::byte* row = memory.data() + 1 + i * (bytes + 1);
    if (stored == Stored::kInt8) {
      const float ends[2] = {std::ldexp(1.0f + 1e-3f * static_cast<float>(i), static_cast<int>(i * 40) - 60), -1.37f};
      std::memcpy(row + int8_scale_at(dim), ends, sizeof ends);
    }
    rows->push_back(row);
  }
  return memory;
}

void copies_agree(const Kernels& set, Stored stored, std::size_t dim, const std::byte* const* rows) {
  for (int type = 0; type < 3; ++type) {
    std::vector<std::byte> want(kRows * dim * 4), got(kRows * dim * 4);
    kScalarKernels.copy[static_cast<int>(stored)][type](rows, kRows, dim, want.data());
    set.copy[static_cast<int>(stored)][type](rows, kRows, dim, got.data());
    CHECK(want == got);
  }
}

// Which of two NaN a sum keeps is the CPU's choice; everything else is the same to the bit.
bool same_sums(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t j = 0; j < a.size(); ++j) {
    const bool same = std::bit_cast<std::uint32_t>(a[j]) == std::bit_cast<std::uint32_t>(b[j]);
    if (!same && !(std::isnan(a[j]) && std::isnan(b[j]))) return false;
  }
  return true;
}

void sums_agree(const Kernels& set, Stored stored, std::size_t dim, const std::byte* const* rows) {
  for (const float* weights : {static_cast<const float*>(nullptr), kWeights}) {
    std::vector<float> want(dim, 0.25f), got(dim, 0.25f), one_by_one(dim, 0.25f), as_f32(dim, 0.25f);
    std::vector<float> copies(kRows * dim);
    kScalarKernels.add[static_cast<int>(stored)](rows, weights, kRows, dim, want.data());
    set.add[static_cast<int>(stored)](rows, weights, kRows, dim, got.data());
    CHECK(same_sums(want, got));
    // Neither the cut of a bag into calls nor an earlier conversion to float32 changes a bit.
    set.copy[static_cast<int>(stored)][0](rows, kRows, dim, copies.data());
    for (std::size_t i = 0; i < kRows; ++i) {
      const float* weight = weights == nullptr ? nullptr : weights + i;
      const auto* copy = reinterpret_cast<const std::byte*>(copies.data() + i * dim);
      set.add[static_cast<int>(stored)](rows + i, weight, 1, dim, one_by_one.data());
      set.add[0](&copy, weight, 1, dim, as_f32.data());
    }
    CHECK(same_sums(want, one_by_one) && same_sums(want, as_f32));
  }
}

void divisions_agree(const Kernels& set, std::size_t dim) {
  std::vector<float> sum(dim);
  for (std::size_t j = 0; j < dim; ++j) sum[j] = static_cast<float>(j) * 1.37f - 40.0f;
  for (int type = 0; type < 3; ++type) {
    std::vector<std::byte> want(dim * 4), got(dim * 4);
    kScalarKernels.divide[type](sum.data(), 3.0f, dim, want.data());
    set.divide[type](sum.data(), 3.0f, dim, got.data());
    CHECK(want == got);
  }
}

void kernels_agree() {
  std::vector<std::size_t> dims = {255, 256, 257, 2047, 2048};
  for (std::size_t dim = 1; dim <= 150; ++dim) dims.push_back(dim);
  for (const Kernels* set : kernels_here()) {
    for (const std::size_t dim : dims) {
      for (const Stored stored : {Stored::kF32, Stored::kF16, Stored::kBF16, Stored::kInt8}) {
        std::vector<const std::byte*> rows;
        const std::vector<std::byte> memory = stored_rows(stored, dim, &rows);
        copies_agree(*set, stored, dim, rows.data());
        sums_agree(*set, stored, dim, rows.data());
      }
      divisions_agree(*set, dim);
    }
  }
}

void every_set_stores_the_same_bytes() {
  std::uint64_t state = 1;
  for (std::size_t dim = 1; dim <= 70; ++dim) {
    std::vector<float> row(dim);
    for (float& value : row) value = static_cast<float>(random_bits(state)) * 0x1p-31f - 1.0f;
    for (const Stored stored : {Stored::kF32, Stored::kF16, Stored::kBF16, Stored::kInt8}) {
      const std::size_t bytes = stored_row_bytes(stored, dim);
      std::vector<std::byte> want(bytes + 1, std::byte{0x5a}), got(bytes + 1, std::byte{0x5a});
      store_rows(kScalarKernels, stored, row.data(), 1, dim, want.data());
      CHECK(want.back() == std::byte{0x5a});
      for (const Kernels* set : kernels_here()) {
        store_rows(*set, stored, row.data(), 1, dim, got.data());
        CHECK(want == got);
      }
    }
  }
}

void bf16_comes_back_as_it_was() {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_of_bf16(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) CHECK(bf16_of_f32(value) == bits);
  }
  const float largest = f32_of_bf16(0x7f7f), too_large = std::bit_cast<float>(0x7f7f8000u);
  CHECK(row_fits(Stored::kBF16, &largest, 1) && !row_fits(Stored::kBF16, &too_large, 1));
}

// More address space than memory: every page but those of the last stretch is one of the same few.
class FarOut {
 public:
  static constexpr std::size_t kStretch = std::size_t{2} << 20;

  explicit FarOut(std::size_t bytes) : bytes_((bytes / kStretch + 2) * kStretch) {
    const int file = memfd_create("far_out", 0);
    CHECK(file >= 0 && ftruncate(file, kStretch) == 0);
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    for (std::size_t first = 0; first + 2 * kStretch < bytes_; first += kStretch) {
      CHECK(mmap(data_ + first, kStretch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
    }
    close(file);
  }
  ~FarOut() { munmap(data_, bytes_); }

  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

void answers_may_pass_2_to_the_31_elements() {
  constexpr std::size_t kDim = 2048;
  constexpr std::size_t kIds = (std::size_t{1} << 20) + 3;
  constexpr std::size_t kBytes = kIds * kDim * 2;
  static_assert(kIds * kDim > std::size_t{1} << 31 && kBytes > std::size_t{1} << 32);
  const std::vector<float> ones(kDim, 1.0f);
  const Table table({.dim = kDim, .stored = Stored::kInt8, .default_row = ones.data()});
  const std::vector<std::int64_t> ids(kIds, 5);
  std::vector<std::int32_t> offsets(kIds + 1);
  for (std::size_t b = 0; b <= kIds; ++b) offsets[b] = static_cast<std::int32_t>(b);
  const auto last = [](const FarOut& out, std::size_t from_end) {
    std::uint16_t half;
    std::memcpy(&half, out.data() + kBytes - from_end, sizeof half);
    return half;
  };
  const std::uint16_t one = f16_of_f32(1.0f);
  const FarOut rows(kBytes), bags(kBytes);
  table.lookup({}, ids.data(), kIds, RowType::kF16, rows.data(), nullptr);
  table.lookup_pooled({}, ids.data(), offsets.data(), kIds, Pooling::kSum, nullptr, RowType::kF16, bags.data(),
                      nullptr);
  for (const FarOut* out : {&rows, &bags}) {
    CHECK(last(*out, 2) == one && last(*out, 2 * kDim * 3) == one);
    CHECK(last(*out, 0) == 0);  // and nothing after the end
  }
}

// Rows are found by 64-bit offsets, whatever the table's size: nothing is read here.
void row_numbers_may_pass_2_to_the_31() {
  TableState state;
  state.row_bytes = 8192;
  state.first_shift = 10;
  std::uint64_t at = 4096;
  for (std::size_t k = 0; k < 26; ++k) {
    state.segments[k].store(at);
    at += (k == 0 ? std::uint64_t{1} << 10 : std::uint64_t{1} << (10 + k - 1)) * state.row_bytes;
  }
  const RowsView rows(state, nullptr);
  constexpr RowNumber kLast = (RowNumber{1} << 35) - 1;
  for (const RowNumber row : {RowNumber{0}, RowNumber{1023}, RowNumber{1024}, RowNumber{1} << 31, kLast}) {
    CHECK(reinterpret_cast<std::uintptr_t>(rows.at(row)) == 4096 + row * 8192);
  }
}

}  // namespace
}  // namespace paramserver

// With an argument, and under a sanitizer, without what would take minutes there.
int main(int arguments, char**) {
  using namespace paramserver;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool quick = true;
#else
  const bool quick = arguments > 1;
#endif
  if (quick) std::printf("quick: answers past 2^31 elements are not written\n");
  kernels_agree();
  every_set_stores_the_same_bytes();
  bf16_comes_back_as_it_was();
  row_numbers_may_pass_2_to_the_31();
  if (!quick) answers_may_pass_2_to_the_31_elements();
  return check_failures == 0 ? 0 : 1;
}
