// The first page of a file that holds a table which other processes map.
//
//   page 0   SharedHeader
//   then     stretches of the owner's memory: TableState and everything it leads to (table_state.h), by offsets from
//            the start of the file
//
// The owner reserves `reserve_bytes` of addresses and lets the file grow within them, space taken from the file system
// before it is used, so that neither side ever meets a page that is not there. The file never shrinks, and what the
// table gives back is used again within the file. Readers map it read-only and write nothing: one that is killed, or
// stops for a minute, concerns nobody.
//
// So the owner cannot know what a reader still looks at, and readers check instead. Memory that was reachable in turn t
// of the table's ReaderGate is used again in turn t + 2 at the earliest, and turns of a shared table last at least
// MappedMemory's turn_ns. A reader notes the turn, copies what it needs, and looks at the turn again: less than two
// turns on, all it has copied was whole and in force; otherwise it throws the copy away and begins anew.
// Thread-safety: plain fields are written before the file appears under its name; atomic ones by the owner at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/error.h"

namespace paramserver {

inline constexpr std::uint64_t kSharedMagic = 0x31484d455650534cULL;  // "LSPVEMH1"
inline constexpr std::uint32_t kSharedFormat = 1;
inline constexpr std::size_t kSharedHeaderBytes = 4096;
inline constexpr std::size_t kSharedNameBytesMax = 255;

struct SharedHeader {
  std::uint64_t magic = 0;
  std::uint32_t format = 0;
  std::uint32_t state_bytes = 0;        // of TableState: another build's may differ
  std::uint64_t reserve_bytes = 0;      // addresses to map, whatever the file's size
  std::uint64_t state = 0;              // offset of the TableState
  std::int64_t base_sequence = 0;       // the sequence that kBaseVersion stands for
  std::uint64_t name_bytes = 0;
  char name[kSharedNameBytesMax + 1] = {};
  std::atomic<std::uint64_t> file_bytes{0};  // everything below is there to be read
};
static_assert(sizeof(SharedHeader) <= kSharedHeaderBytes);

// Operating fault: the file of a shared table cannot be made, opened or mapped.
class SharedFileError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreError"; }
};

// Operating fault: another process owns the table.
class SharedFileLocked final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreLocked"; }
};

// Operating fault: the file is no shared table of this build.
class SharedFileDamaged final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreDamaged"; }
};

}  // namespace paramserver
