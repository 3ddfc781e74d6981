// A dense graph loaded in a TensorFlow session: feeds are tensors over the caller's memory, used in place.
//
// Thread-safety: run() may be called from several threads at once (a session is).
// Ownership: a feed's memory is held through FeedRelease until TensorFlow's deallocator for it has fired. A feed that
// is not 64-byte aligned is copied here, into aligned memory, and counted: TensorFlow would copy it without a word.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lambda_svc/csrc/executable.h"
#include "lambda_svc/csrc/tf_library.h"

namespace lambda_svc {

class TfExecutable final : public Executable {
 public:
  // `config_proto` and `run_options` are serialised tensorflow.ConfigProto and RunOptions; empty ones are defaults.
  // `once` are nodes that run now, one after another, before any request: what restores variables and fills tables.
  // Throws EngineError naming the input or output that the graph lacks or has with another dtype or shape.
  TfExecutable(std::shared_ptr<const TfLibrary> library, const std::string& graph_def, std::vector<TensorSpec> inputs,
               const std::vector<TensorSpec>& outputs, const std::string& config_proto,
               const std::string& run_options, const std::vector<std::string>& once = {});
  ~TfExecutable() override;

  const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

  void run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
           RunStats* stats) const override;

 private:
  tf::TF_Output endpoint(const std::string& name, const char* what) const;
  std::vector<std::int64_t> shape_of(tf::TF_Output output, bool* known) const;
  void import_graph(const std::string& graph_def);
  void check_input(const TensorSpec& spec);
  void check_output(const TensorSpec& spec);
  void open_session(const std::string& config_proto);
  void run_once(const std::string& node);
  void close() noexcept;
  tf::TF_Tensor* feed_tensor(std::size_t input, const Feed& feed, const FeedRelease& release, RunStats* stats) const;

  const std::shared_ptr<const TfLibrary> library_;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  std::vector<tf::TF_Output> input_ends_;
  std::vector<tf::TF_Output> output_ends_;
  std::string run_options_;
  tf::TF_Graph* graph_ = nullptr;
  tf::TF_Session* session_ = nullptr;
};

}  // namespace lambda_svc
