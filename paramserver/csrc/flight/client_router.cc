#include "paramserver/csrc/flight/client_router.h"

#include <bit>

#include "paramserver/csrc/hash.h"

namespace paramserver::flight {

// Slots take the high bits of the hash and shards its low ones, so that the ids of one shard do not crowd.
void Router::route(const std::int64_t* ids, std::size_t n, std::uint32_t shards, Routes* routes) {
  constexpr std::size_t kAhead = 12;
  const int bits = std::bit_width(n | 15u) + 1;
  const int shift = 64 - bits;
  const std::size_t mask = (std::size_t{1} << bits) - 1;
  slots_.assign(mask + 1, 0);
  seen_.clear();
  shard_.clear();
  routes->number.resize(n);
  std::vector<std::uint32_t> counts(shards, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&slots_[mix(ids[i + kAhead]) >> shift]);
    const std::uint64_t hash = mix(ids[i]);
    std::size_t slot = hash >> shift;
    while (slots_[slot] != 0 && seen_[slots_[slot] - 1] != ids[i]) slot = (slot + 1) & mask;
    if (slots_[slot] == 0) {
      seen_.push_back(ids[i]);
      shard_.push_back(shard_of(ids[i], shards));
      counts[shard_.back()] += 1;
      slots_[slot] = static_cast<std::uint32_t>(seen_.size());
    }
    routes->number[i] = slots_[slot] - 1;
  }
  routes->first.assign(shards + 1, 0);
  std::vector<std::shared_ptr<std::vector<std::int64_t>>> lists(shards);
  for (std::uint32_t s = 0; s < shards; ++s) {
    routes->first[s + 1] = routes->first[s] + counts[s];
    lists[s] = std::make_shared<std::vector<std::int64_t>>();
    lists[s]->reserve(counts[s]);
  }
  renumbered_.resize(seen_.size());
  for (std::size_t u = 0; u < seen_.size(); ++u) {
    std::vector<std::int64_t>& list = *lists[shard_[u]];
    renumbered_[u] = routes->first[shard_[u]] + static_cast<std::uint32_t>(list.size());
    list.push_back(seen_[u]);
  }
  for (std::uint32_t& number : routes->number) number = renumbered_[number];
  routes->ids.assign(lists.begin(), lists.end());
}

}  // namespace paramserver::flight
