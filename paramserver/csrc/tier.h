// The cold tier of a table: rows that RAM has no room for lie in the base slot file or in the spill file, lookups read
// them in batches, and those that are asked for often move into RAM.
//
//   reader      read():    cold rows of a batch, at most cold_reads_max of a call; each is proposed for RAM
//               touched(): counts hits of rows in RAM
//   keeper      maintain(): a thread of its own takes proposals from a bounded queue, and moves in what is asked for
//               more often than what has to go (admission.h)
//   writer      make_way():  before a delta supersedes rows in RAM and there is no room for old and new ones
//               make_room(): before rows of the base state go to RAM
//
// RAM holds at most ram_bytes_max bytes of rows and of what the tier keeps for each; index and undo indexes come on
// top. It is for the newest rows: when room is short, those that only older epochs read go first. A row that goes and
// that has a slot in a file goes by one store; others are written to the spill file first, and stay where they are when
// that is full. Thread-safety: as cold_tier.h says. Ownership: the table owns its tier, and the tier its files and its
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "paramserver/csrc/admission.h"
#include "paramserver/csrc/cold_reader.h"
#include "paramserver/csrc/cold_tier.h"
#include "paramserver/csrc/slot_file.h"
#include "paramserver/csrc/tier_queue.h"
#include "paramserver/csrc/tier_stats.h"

namespace paramserver {

struct TierOptions {
  std::uint64_t ram_bytes_max = 0;        // of rows in RAM
  std::string directory;                  // of the spill file
  std::uint64_t spill_bytes_max = 0;      // of the spill file; 0: as the file system allows
  std::uint64_t cold_reads_max = 100'000; // of one call; more are answered kDeadline
  unsigned depth_max = 128;               // reads in flight of one call
  std::uint64_t proposals_max = 8192;     // waiting for the keeper
  bool direct = true;                     // past the page cache
  bool keeper = true;                     // false: nothing moves in but by maintain()
  std::string base_path;                  // file of base rows; empty: none
  std::uint64_t base_offset = 0;          // where its slots begin
};

// Null for no options.
std::unique_ptr<ColdTier> make_tier(const std::optional<TierOptions>& options, std::size_t row_bytes);

class SlotTier final : public ColdTier {
 public:
  // Throws OptionError, SlotFileError, MemoryExhausted.
  SlotTier(const TierOptions& options, std::size_t row_bytes);
  ~SlotTier() override;

  void begin(ColdScratch& scratch) const noexcept override;
  void end(ColdScratch& scratch) const noexcept override;
  void read(const LookupContext& context, ColdRead* reads, std::size_t n,
            ColdScratch& scratch) const noexcept override;
  void touched(const RowNumber* rows, std::size_t n) const noexcept override;

  std::uint64_t rows_ram_max() const noexcept override { return clock_.rows_max(); }
  void make_room(Table& table, std::uint64_t rows) override;
  void make_way(Table& table, const std::vector<RamRow>& rows) override;
  void spill(const std::int64_t* ids, const std::byte* const* rows, std::size_t n, std::uint64_t* slots) override;
  void placed(RowNumber row, std::int64_t id) noexcept override;
  void shelved(RowNumber row) noexcept override { clock_.untrack(row); }
  void restored(RowNumber row) noexcept override { clock_.track(row); }
  void released(RowNumber row) noexcept override;
  void released_slot(std::uint64_t spill_slot) noexcept override { spill_.release(spill_slot); }
  bool maintain(Table& table) override;

  void start(Table& table) override;
  void stop() noexcept override;

  TierStats stats() const noexcept override;

 private:
  struct Scratch;
  struct Candidate {
    Proposal proposal;
    unsigned count;
    std::uint32_t row;  // its place in `candidate_rows_`
  };

  void deliver(const SlotRead& slot, ColdRead& read) const noexcept;
  void propose(const ColdRead* reads, std::size_t n) const noexcept;
  bool take_proposals();
  void age() noexcept;
  std::size_t make_places(Table& table, std::size_t candidates);
  std::uint64_t move_out(Table& table, const std::vector<RamRow>& victims);
  void move_in(Table& table, const Candidate& candidate);
  SlotRead slot_read(RowState state, std::byte* to) const noexcept;
  void reread_spilled(std::size_t candidates);
  void keep(Table& table);

  const TierOptions options_;
  const std::size_t row_bytes_;
  const std::size_t slot_bytes_;
  const std::size_t batch_max_;  // proposals that are taken up at once
  const SlotGeometry base_geometry_;
  FileDescriptor base_;
  bool base_direct_ = false;
  SlotFile spill_;
  // Readers add to these.
  mutable RowClock clock_;
  mutable ProposalQueue queue_;
  mutable std::atomic<std::uint64_t> accesses_{0};
  mutable std::atomic<std::uint64_t> mismatched_{0};
  mutable std::atomic<std::uint64_t> over_{0};
  mutable std::atomic<std::uint64_t> proposed_{0};
  mutable std::atomic<std::uint64_t> dropped_{0};
  mutable std::atomic<std::uint32_t> wakes_{0};
  // The writer's.
  FrequencySketch sketch_;
  std::vector<Candidate> candidates_;
  std::vector<std::byte> candidate_rows_;
  std::uint64_t promoted_ = 0;
  std::uint64_t rejected_ = 0;
  std::uint64_t demoted_clean_ = 0;
  std::uint64_t demoted_dirty_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread keeper_;
  // Last, so that no read is in flight when the files close.
  mutable ColdReader reader_;
};

}  // namespace paramserver
