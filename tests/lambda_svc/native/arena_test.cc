#include "lambda_svc/csrc/arena.h"

#include <cstring>

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"

using namespace lambda_svc;

TEST(arena_reuses_a_block_that_came_back) {
  const auto arena = Arena::make({});
  const void* first = nullptr;
  {
    const Lease lease = arena->lease(100000);
    first = lease.data();
    CHECK(reinterpret_cast<std::uintptr_t>(first) % kFeedAlignment == 0);
    CHECK(lease.bytes() >= 100000);
    CHECK(arena->owns(lease.data() + 99999));
    CHECK(arena->stats().leases == 1);
  }
  CHECK(arena->stats().leases == 0);
  CHECK(arena->stats().leased_bytes == 0);
  CHECK(arena->lease(90000).data() == first);
  CHECK(arena->stats().blocks_new == 1);
}

TEST(arena_keeps_a_block_until_its_last_tensor_lets_go) {
  const auto arena = Arena::make({});
  FeedRelease tensor{};
  const void* block = nullptr;
  {
    const Lease lease = arena->lease(1000);
    block = lease.data();
    tensor = lease.release();
    tensor.acquire(tensor.owner);
    tensor.acquire(tensor.owner);
  }
  CHECK(arena->stats().leases == 1);
  CHECK(arena->lease(1000).data() != block);
  tensor.release(tensor.owner);
  CHECK(arena->stats().leases == 1);
  tensor.release(tensor.owner);
  CHECK(arena->stats().leases == 0);
  CHECK(arena->lease(1000).data() == block);
}

TEST(arena_outlives_its_owner_while_leased) {
  auto arena = Arena::make({});
  const Lease lease = arena->lease(1000);
  arena.reset();
  std::memset(lease.data(), 1, lease.bytes());
  CHECK(lease.data()[999] == std::byte{1});
}

TEST(arena_refuses_past_its_limit_and_evicts_before) {
  const auto arena = Arena::make({.bytes_max = 1 << 20, .block_bytes = 4096});
  { const Lease small = arena->lease(500000); }
  CHECK(arena->stats().pooled_bytes > 0);
  const Lease large = arena->lease(900000);  // only fits once the pooled block is gone
  CHECK(arena->stats().pooled_bytes == 0);
  CHECK_THROWS(ArenaExhausted, "bytes_max", arena->lease(500000));
  CHECK_THROWS(ArenaExhausted, "bytes_max", arena->lease(std::size_t{1} << 50));
  CHECK(arena->stats().exhausted == 2);
  CHECK(arena->stats().leases == 1);
}

TEST(arena_maps_large_blocks_on_huge_page_boundaries) {
  for (const bool huge : {true, false}) {
    const auto arena = Arena::make({.huge_pages = huge});
    {
      const Lease lease = arena->lease(5 << 20);
      CHECK(reinterpret_cast<std::uintptr_t>(lease.data()) % (2 << 20) == 0);
      std::memset(lease.data(), 7, lease.bytes());
    }
    arena->trim();
    CHECK(arena->stats().pooled_bytes == 0);
  }
}

TEST(arena_checks_its_options) {
  CHECK_THROWS(std::invalid_argument, "block_bytes", Arena::make({.block_bytes = 5000}));
  CHECK_THROWS(std::invalid_argument, "bytes_max", Arena::make({.bytes_max = 100}));
}
