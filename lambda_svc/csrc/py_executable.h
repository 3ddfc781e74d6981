// A dense graph in an engine that has a Python API only: each run calls back into Python, which the bindings do.
//
// Thread-safety: run() may be called from several threads at once, without the GIL; the call takes it.
// Ownership: feeds are held through FeedRelease for the length of the call, which must not keep them. One that is not
// 64-byte aligned is copied, and counted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lambda_svc/csrc/executable.h"

namespace lambda_svc {

// What the engine made of one output: float32, alive while it is taken.
struct PyOutput {
  const float* data;
  std::vector<std::int64_t> shape;
};

class PyExecutable final : public Executable {
 public:
  using Take = std::function<void(std::size_t output, const PyOutput& value)>;
  // Runs the graph on feeds [inputs] and gives every output to `take`, in order. Throws EngineError.
  using Call = std::function<void(const Feed* feeds, const Take& take)>;

  // Throws EngineError when there are no outputs.
  PyExecutable(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, Call call);

  const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

  void run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
           RunStats* stats) const override;

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  Call call_;
};

}  // namespace lambda_svc
