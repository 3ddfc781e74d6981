// Hash maps of C++ from id to row number, and rows in one array: Boost's concurrent_flat_map and unordered_flat_map,
// Abseil's flat_hash_map. Speaks the protocol of protocol.py:
//   maps VARIANT ROWS DIM BATCH FILE      VARIANT: boost_concurrent, boost_flat, absl_flat
//
// Index and rows lie in memory that asks for huge pages, as ours does. The hash is ours (csrc/hash.h), so that only the
// map differs. One thread.
#include <absl/container/flat_hash_map.h>
#include <sys/mman.h>

#include <boost/unordered/concurrent_flat_map.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "paramserver/csrc/hash.h"
#include "tools/peers/batches.h"

namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}
  T* allocate(std::size_t n) {
    const std::size_t bytes = (n * sizeof(T) + kHuge - 1) / kHuge * kHuge;
    void* memory = std::aligned_alloc(kHuge, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  friend bool operator==(const HugePages&, const HugePages&) { return true; }
};

struct Mix {
  using is_avalanching = void;
  std::size_t operator()(std::int64_t id) const { return paramserver::mix(id); }
};

using Entry = std::pair<const std::int64_t, std::uint64_t>;
using BoostFlat = boost::unordered_flat_map<std::int64_t, std::uint64_t, Mix, std::equal_to<>, HugePages<Entry>>;
using BoostConcurrent =
    boost::concurrent_flat_map<std::int64_t, std::uint64_t, Mix, std::equal_to<>, HugePages<Entry>>;
using AbslFlat = absl::flat_hash_map<std::int64_t, std::uint64_t, Mix, std::equal_to<>, HugePages<Entry>>;

template <class Map>
const std::uint64_t* find(const Map& map, std::int64_t id, std::uint64_t& number) {
  const auto found = map.find(id);
  if (found == map.end()) return nullptr;
  number = found->second;
  return &number;
}

const std::uint64_t* find(const BoostConcurrent& map, std::int64_t id, std::uint64_t& number) {
  return map.visit(id, [&](const auto& entry) { number = entry.second; }) ? &number : nullptr;
}

long kibibytes(const char* name) {
  std::ifstream lines("/proc/self/smaps_rollup");
  std::string word;
  while (lines >> word) {
    long value = 0;
    if (word == name && lines >> value) return value;
  }
  return 0;
}

template <class Map>
int serve(std::size_t rows, std::size_t dim, std::size_t batch, const char* file) {
  Map map;
  map.reserve(rows);
  std::vector<float, HugePages<float>> values(rows * dim), out(batch * dim);
  for (std::size_t row = 0; row < rows; ++row) {
    map.emplace(static_cast<std::int64_t>(row) * kOdd, row);
    for (std::size_t k = 0; k < dim; ++k) values[row * dim + k] = static_cast<float>(row % 1021);
  }
  return answer_batches(file, batch, out, "", kibibytes("Rss:") * 1024, kibibytes("AnonHugePages:") * 1024,
                        [&](const std::vector<std::int64_t>& ids) {
                          for (std::size_t i = 0; i < batch; ++i) {
                            std::uint64_t number = 0;
                            float* to = out.data() + i * dim;
                            if (find(map, ids[i], number)) {
                              std::memcpy(to, values.data() + number * dim, dim * sizeof(float));
                            } else {
                              std::memset(to, 0, dim * sizeof(float));
                            }
                          }
                          return true;
                        });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string variant = argv[1];
  const std::size_t rows = std::stoull(argv[2]), dim = std::stoull(argv[3]), batch = std::stoull(argv[4]);
  if (variant == "boost_concurrent") return serve<BoostConcurrent>(rows, dim, batch, argv[5]);
  if (variant == "boost_flat") return serve<BoostFlat>(rows, dim, batch, argv[5]);
  if (variant == "absl_flat") return serve<AbslFlat>(rows, dim, batch, argv[5]);
  return 2;
}
