// The parameter server's wire: what the headers of one lookup and of its answers look like, byte by byte.
//
// A client holds a DoExchange stream per replica and lane, and has many lookups in flight on it. Every message carries
// one of these headers as its application metadata, and at most one record batch:
//
//   lookup:  LookupHeader, then the table's name in UTF-8;   batch {id: int64}, n rows
//   answer:  AnswerHeader, then a message in UTF-8 if code is not kOk;   batch {rows: binary, statuses: binary}, 1 row
//
// A Flight stream has one schema for its whole life, whatever tables it asks, so the n' rows of an answer lie back to
// back in the one value of `rows` (count * wire_row_bytes), and `statuses` has one RowStatus byte for each.
//
// An answer comes in chunks, in order, `first` counting rows of the lookup; the chunk with first + count == n is the
// last. Chunks of different lookups may alternate. A refusal is an answer without a batch and ends its lookup, also
// after chunks. An answer names its lookup, so a late one finds nobody waiting and is dropped: it can never be taken
// for another's. A lookup without ids is answered like any other, by one chunk without rows: clients send one when a
// stream has been quiet, because pings of gRPC's own cannot be relied on (a server closes connections that ping more
// often than every five minutes).
//
// All numbers are little-endian and without padding. A row on the wire is `dim` numbers of the wire type; kInt8 rows
// are those of row_format.h. Thread-safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paramserver::flight {

inline constexpr std::uint32_t kWireMagic = 0x5053564c;  // "LVSP"
inline constexpr std::uint16_t kWireFormat = 1;
inline constexpr std::uint32_t kIdsPerLookupMax = 1u << 20;

enum class WireType : std::uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kInt8 = 3 };

enum class AnswerCode : std::uint8_t {
  kOk = 0,
  kShardMapMismatch = 1,  // the map's version, or this shard's place in it, is not what the lookup says
  kUnknownTable = 2,
  kUnknownEpoch = 3,      // never published here, not yet staged, or retired
  kBadRequest = 4,
  kOverloaded = 5,        // over the bound of lookups or rows in flight
  kClosing = 6,
  kExpired = 7,           // the budget was over before all rows were sent
};

#pragma pack(push, 1)
struct LookupHeader {
  std::uint32_t magic = kWireMagic;
  std::uint16_t format = kWireFormat;
  WireType wire = WireType::kF32;
  std::uint8_t name_bytes = 0;         // of the table's name, which follows
  std::uint64_t lookup = 0;            // chosen by the client, never used twice on a stream
  std::uint64_t epoch = 0;             // never 0: the client learns epochs from the epoch files
  std::uint64_t map_version = 0;
  std::uint32_t shard = 0;             // whom the client believes it speaks to
  std::uint32_t shards = 0;
  std::uint64_t budget_us = 0;         // time left when sent; 0: no deadline
  std::uint32_t ids = 0;               // n
};

struct AnswerHeader {
  std::uint32_t magic = kWireMagic;
  std::uint16_t format = kWireFormat;
  WireType wire = WireType::kF32;
  AnswerCode code = AnswerCode::kOk;
  std::uint64_t lookup = 0;
  std::uint64_t epoch = 0;             // the epoch answered from
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t dim = 0;
  std::uint32_t message_bytes = 0;     // of the message that follows
};
#pragma pack(pop)
static_assert(sizeof(LookupHeader) == 52 && sizeof(AnswerHeader) == 40);

inline constexpr std::size_t kAnswerCodes = 8;

// Bytes of one row of an answer. kInt8: codes, padded to a multiple of 4, then scale and bias in float32.
constexpr std::size_t wire_row_bytes(WireType wire, std::size_t dim) noexcept {
  switch (wire) {
    case WireType::kF32:
      return 4 * dim;
    case WireType::kInt8:
      return (dim + 3) / 4 * 4 + 8;
    default:
      return 2 * dim;
  }
}

}  // namespace paramserver::flight
