// What a cold tier has done since its start, and what it holds now. Thread-safety: plain values.
#pragma once

#include <cstdint>

#include "paramserver/csrc/slot_file.h"

namespace paramserver {

struct TierStats {
  std::uint64_t rows_ram = 0;         // live rows in RAM
  std::uint64_t rows_ram_max = 0;     // what the budget has room for
  std::uint64_t rows_cold_read = 0;   // delivered to lookups
  std::uint64_t reads = 0;            // asked of the system
  std::uint64_t read_bytes = 0;
  std::uint64_t reads_failed = 0;     // rows that could not be read
  std::uint64_t reads_mismatched = 0; // slots that held another id's row
  std::uint64_t reads_over = 0;       // rows beyond cold_reads_max or the deadline
  std::uint64_t reads_in_flight = 0;
  std::uint64_t proposed = 0;
  std::uint64_t dropped = 0;          // proposals that found the queue full
  std::uint64_t promoted = 0;
  std::uint64_t rejected = 0;         // asked for less often than what would have had to go
  std::uint64_t demoted_clean = 0;    // by one store
  std::uint64_t demoted_dirty = 0;    // written to the spill file first
  SlotFileStats spill;
  bool base_direct = false;
  const char* engine = "";
};

}  // namespace paramserver
