// A dense graph compiled by OpenVINO for the CPU: feeds are tensors over the caller's memory.
//
// Thread-safety: run() may be called from several threads at once; each run has a lane (an infer request with threads
// of its own) to itself, and waits for one when all are taken.
// Ownership: a feed's memory is held through FeedRelease for the length of the run. A feed that is not 64-byte aligned
// is copied into memory of the lane, and counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lambda_svc/csrc/executable.h"
#include "lambda_svc/csrc/feeds.h"
#include "lambda_svc/csrc/lanes.h"
#include "lambda_svc/csrc/ov_library.h"

namespace lambda_svc {

struct OvOptions {
  std::string precision = "f32";  // "f32" or "bf16": what products are computed in
  std::size_t lanes = 1;          // runs at once
  std::size_t threads = 1;        // of all lanes together, shared out evenly
};

// What is fetched: the output, and the tensor at an end of the graph that carries it.
struct OvOutput {
  TensorSpec spec;
  std::string fetch;
};

class OvExecutable final : public Executable {
 public:
  // `graph_def` is a frozen GraphDef whose only ends are the fetches; `read[i]` tells whether it has input i at all.
  // Throws EngineError naming the input or output that the graph lacks or has with another dtype or shape, and
  // EngineUnavailable for a precision that this CPU does not compute in.
  OvExecutable(std::shared_ptr<const OvLibrary> library, const std::string& graph_def, std::vector<TensorSpec> inputs,
               std::vector<bool> read, std::vector<OvOutput> outputs, const OvOptions& options);
  ~OvExecutable() override;

  const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

  void run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
           RunStats* stats) const override;

 private:
  struct Lane {
    ov::ov_infer_request_t* request = nullptr;
    std::vector<AlignedBuffer> copies;  // of unaligned feeds, by input
  };
  ov::ov_model_t* read_model(const std::string& graph_def) const;
  void check_inputs(const ov::ov_model_t* model) const;
  void check_input(const ov::ov_model_t* model, const TensorSpec& spec) const;
  void reshape(const ov::ov_model_t* model) const;
  void compile(const ov::ov_model_t* model, const OvOptions& options);
  void find_ports(const std::vector<OvOutput>& outputs);
  void check_output(const TensorSpec& spec, const ov::ov_output_const_port_t* port);
  void close() noexcept;
  void feed(Lane& lane, std::size_t input, const Feed& feed, RunStats* stats) const;
  void fetch(const Lane& lane, std::size_t output, float* out, std::size_t rows) const;

  const std::shared_ptr<const OvLibrary> library_;
  std::vector<TensorSpec> inputs_;
  std::vector<bool> read_;
  std::vector<TensorSpec> outputs_;
  ov::ov_compiled_model_t* compiled_ = nullptr;
  std::vector<ov::ov_output_const_port_t*> input_ports_;  // null for inputs that the graph does not read
  std::vector<ov::ov_output_const_port_t*> output_ports_;
  Lanes<Lane> lanes_;
};

}  // namespace lambda_svc
