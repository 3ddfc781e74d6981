#include "lambda_svc/csrc/py_executable.h"

#include <cstring>

#include "lambda_svc/csrc/feeds.h"

namespace lambda_svc {
PyExecutable::PyExecutable(std::vector<TensorSpec> inputs, const std::vector<std::string>& outputs, Call call)
    : inputs_(std::move(inputs)), call_(std::move(call)) {
  if (outputs.empty()) throw EngineError("outputs: got none; expected at least one head");
  for (const std::string& name : outputs) outputs_.push_back({name, DType::kF32, {-1}});
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
    if (values != rows) {
      throw EngineError("output " + outputs_[output].name + ": got " + std::to_string(values) +
                        " values; expected one for each of " + std::to_string(rows) + " rows");
    }
    std::memcpy(outs[output], value.data, values * sizeof(float));
  });
}

}  // namespace lambda_svc
