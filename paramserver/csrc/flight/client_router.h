// Cuts the ids of one lookup into one list per shard, each id once, and remembers where the answers go.
//
//   ids      7  3  7  9          of 2 shards, say 3 and 9 on shard 0, 7 on shard 1
//   unique   shard 0: [3, 9]     shard 1: [7]          numbered through: 3 -> 0, 9 -> 1, 7 -> 2
//   number   2  0  2  1          of the unique id that stands at each place
//
// Thread-safety: route() is pure; a Router's scratch belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace paramserver::flight {

// The ids that go to one shard. Shared, because a message that is still being written outlives the call that gave up.
using ShardIds = std::shared_ptr<const std::vector<std::int64_t>>;

struct Routes {
  std::vector<ShardIds> ids;           // [shards]; never null
  std::vector<std::uint32_t> first;    // [shards + 1]: the number of each shard's first id, and of all unique ids
  std::vector<std::uint32_t> number;   // [n]
};

class Router {
 public:
  // n at most 2^31. Throws std::bad_alloc.
  void route(const std::int64_t* ids /*[n]*/, std::size_t n, std::uint32_t shards, Routes* routes);

 private:
  std::vector<std::uint32_t> slots_;   // open addressing: 1 + place of the id in seen_, 0: free
  std::vector<std::int64_t> seen_;     // unique ids in order of appearance
  std::vector<std::uint32_t> shard_;   // of each of seen_
  std::vector<std::uint32_t> renumbered_;
};

}  // namespace paramserver::flight
