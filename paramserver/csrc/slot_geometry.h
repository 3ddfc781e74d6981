// Where rows lie in a file of slots: a snapshot's slots section and a spill file.
//
//   slot_bytes <= 4096:   | slot 0 | slot 1 | .. | slot k-1 | 0.. |   k = 4096 / slot_bytes slots to a page, whole ones
//                         |<------------- 4096 ---------------->|
//   slot_bytes  > 4096:   | slot 0, zeros to the page's end | slot 1 .. |   slot_bytes is a multiple of 4096
//
// So any one row is read with as few O_DIRECT pages as it can lie in. Offsets are relative to the section's start,
// which is page-aligned itself. Thread-safety: a value.
#pragma once

#include <cstdint>

namespace paramserver {

inline constexpr std::uint64_t kPageBytes = 4096;

// n rounded up to whole pages.
constexpr std::uint64_t whole_pages(std::uint64_t n) noexcept { return (n + kPageBytes - 1) / kPageBytes * kPageBytes; }

struct SlotGeometry {
  std::uint32_t slot_bytes = 0;      // distance of slots in a page, or whole pages
  std::uint32_t slots_per_page = 0;  // 0: a slot takes slot_bytes / 4096 pages

  // The geometry of slots that hold `bytes` (not 0) each.
  static constexpr SlotGeometry of(std::uint32_t bytes) noexcept {
    if (bytes > kPageBytes) return {static_cast<std::uint32_t>(whole_pages(bytes)), 0};
    return {bytes, static_cast<std::uint32_t>(kPageBytes / bytes)};
  }

  // Where slot number `slot` begins.
  constexpr std::uint64_t offset(std::uint64_t slot) const noexcept {
    if (slots_per_page == 0) return slot * slot_bytes;
    return slot / slots_per_page * kPageBytes + slot % slots_per_page * slot_bytes;
  }

  // The first slot that begins at or after the byte `offset`, which is a multiple of 4096.
  constexpr std::uint64_t slot_at(std::uint64_t offset) const noexcept {
    if (slots_per_page == 0) return (offset + slot_bytes - 1) / slot_bytes;
    return offset / kPageBytes * slots_per_page;
  }

  // A block is what one read brings: a page of slots, or one slot of several pages.
  constexpr std::uint64_t slots_per_block() const noexcept { return slots_per_page == 0 ? 1 : slots_per_page; }
  constexpr std::uint64_t block_bytes() const noexcept { return slots_per_page == 0 ? slot_bytes : kPageBytes; }
  constexpr std::uint64_t block_of(std::uint64_t slot) const noexcept { return slot / slots_per_block(); }
  constexpr std::uint64_t offset_in_block(std::uint64_t slot) const noexcept {
    return slot % slots_per_block() * slot_bytes;
  }

  // Bytes of a section of `slots` slots, whole pages.
  constexpr std::uint64_t bytes(std::uint64_t slots) const noexcept {
    if (slots_per_page == 0) return slots * slot_bytes;
    return (slots + slots_per_page - 1) / slots_per_page * kPageBytes;
  }
};

}  // namespace paramserver
