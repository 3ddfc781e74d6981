#include "lambda_svc/csrc/py_executable.h"

#include <cstring>

#include "lambda_svc/csrc/feeds.h"
#include "lambda_svc/csrc/outputs.h"

namespace lambda_svc {
PyExecutable::PyExecutable(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, Call call)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), call_(std::move(call)) {
  if (outputs_.empty()) throw EngineError("outputs: got none; expected at least one head");
}

void PyExecutable::run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
                       RunStats* stats) const {
  std::vector<Feed> aligned(feeds, feeds + inputs_.size());
  std::vector<AlignedBuffer> copies(inputs_.size());
  HeldFeeds held(release);
  for (std::size_t i = 0; i < aligned.size(); ++i) {
    held.add();
    check_feed(inputs_[i], aligned[i]);
    aligned[i].data = copies[i].aligned(aligned[i], stats);
  }
  call_(aligned.data(), [&](std::size_t output, const PyOutput& value) {
    std::size_t values = 1;
    for (const std::int64_t size : value.shape) values *= static_cast<std::size_t>(size);
    check_values(outputs_[output], values, rows);
    std::memcpy(outs[output], value.data, values * sizeof(float));
  });
}

}  // namespace lambda_svc
