// The contract between the pipeline and an engine: a loaded dense graph that runs on memory it does not own.
//
// Thread-safety: run() may be called from several threads at once.
// Ownership: feeds stay the caller's; `release` in RunContext tells when the engine has let go of one (an output may
// alias a feed, so this can be after run() returned). Outputs are copied into the caller's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lambda_svc {

// The same numbers as feature_store::DType and ranking.proto.
enum class DType : std::uint8_t { kF32 = 1, kI64 = 2, kBytes = 3, kI32 = 4 };

inline constexpr std::size_t kFeedAlignment = 64;  // engines use a feed in place from here on, and copy it below
inline constexpr std::size_t kSliceMultiple = 64;  // slices start at multiples of this, so every feed stays aligned

struct TensorSpec {
  std::string name;                 // as the graph names it, "history_item_rows:0"
  DType dtype;
  std::vector<std::int64_t> shape;  // -1: the number of candidates
};

// How many values a tensor has when there are `rows` candidates.
inline std::size_t values_of(const TensorSpec& spec, std::size_t rows) {
  std::size_t values = 1;
  for (const std::int64_t size : spec.shape) values *= size < 0 ? rows : static_cast<std::size_t>(size);
  return values;
}

// A shape as messages show it: [-1,50,16].
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text(1, '[');
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ',';
    text += std::to_string(size);
  }
  text += ']';
  return text;
}

struct Feed {
  const void* data;
  std::size_t bytes;
  const std::int64_t* dims;
  int rank;
};

// Called once per feed when the engine no longer reads it. `owner` keeps the memory alive, an arena lease for instance.
struct FeedRelease {
  void (*acquire)(void* owner);
  void (*release)(void* owner);
  void* owner;
};

struct RunStats {
  std::uint64_t bytes_copied = 0;  // feeds the engine could not use in place
};

class Executable {
 public:
  virtual ~Executable() = default;

  virtual const std::vector<TensorSpec>& inputs() const noexcept = 0;
  virtual const std::vector<TensorSpec>& outputs() const noexcept = 0;

  // Runs the graph once; the values of output i, values_of(outputs()[i], rows) float32, are written to outs[i]. A score
  // a row has shape [-1], packed heads have [heads, -1], what a user graph shares a fixed one. Throws EngineError
  // (errors.h) with the engine's own message.
  virtual void run(const Feed* feeds /*[inputs]*/, const FeedRelease& release, float* const* outs /*[outputs]*/,
                   std::size_t rows, RunStats* stats) const = 0;
};

inline constexpr const char* kExecutableCapsule = "lambda_svc.Executable.1";

}  // namespace lambda_svc
