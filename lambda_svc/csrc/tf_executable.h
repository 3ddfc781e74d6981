// A dense graph loaded in a TensorFlow session: feeds are tensors over the caller's memory, used in place.
//
// On devices, each has a copy of the graph, and is a lane: one run at a time, start to end, on that device alone.
//
// Thread-safety: run() may be called from several threads at once (a session is); on devices, a run waits for a lane
// when all are taken.
// Ownership: a feed's memory is held through FeedRelease until TensorFlow's deallocator for it has fired. A feed that
// is not 64-byte aligned is copied here, into aligned memory, and counted: TensorFlow would copy it without a word.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lambda_svc/csrc/executable.h"
#include "lambda_svc/csrc/lanes.h"
#include "lambda_svc/csrc/tf_library.h"

namespace lambda_svc {

struct TfOptions {
  std::string config_proto;          // a serialised tensorflow.ConfigProto; empty: defaults
  std::string run_options;           // a serialised tensorflow.RunOptions; empty: defaults
  std::vector<std::string> once;     // nodes that run now, one after another: what restores variables, fills tables
  std::vector<std::string> devices;  // "/device:GPU:0", one a lane; none: no placement, runs need no lane
};

class TfExecutable final : public Executable {
 public:
  // Throws EngineError naming the input or output that the graph lacks or has with another dtype or shape, and
  // EngineUnavailable naming a device that is not there.
  TfExecutable(std::shared_ptr<const TfLibrary> library, const std::string& graph_def, std::vector<TensorSpec> inputs,
               const std::vector<TensorSpec>& outputs, TfOptions options);
  ~TfExecutable() override;

  const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

  void run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
           RunStats* stats) const override;

  // Runs on this lane with other run options, and returns the serialised tensorflow.RunMetadata that they ask for.
  std::string trace(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
                    RunStats* stats, std::size_t lane, const std::string& run_options) const;
  // How often each lane ran so far.
  std::vector<std::uint64_t> lane_runs() const;

 private:
  struct Lane {
    std::string prefix;  // of the names of this copy's nodes: "lane_0/"
    std::vector<tf::TF_Output> inputs;
    std::vector<tf::TF_Output> outputs;
    std::atomic<std::uint64_t> runs{0};
  };
  tf::TF_Output endpoint(const Lane& lane, const std::string& name, const char* what) const;
  std::vector<std::int64_t> shape_of(tf::TF_Output output, bool* known) const;
  void add_lane(const std::string& graph_def, const std::string& device, const std::vector<TensorSpec>& outputs);
  void import_graph(const std::string& graph_def, const std::string& prefix, const std::string& device);
  void check_input(const TensorSpec& spec, Lane* lane) const;
  void check_output(const TensorSpec& spec, Lane* lane) const;
  void open_session();
  void check_devices() const;
  void run_once(const std::string& node);
  void close() noexcept;
  void run_on(Lane& lane, const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
              RunStats* stats, const std::string& run_options, tf::TF_Buffer* metadata) const;
  tf::TF_Tensor* feed_tensor(std::size_t input, const Feed& feed, const FeedRelease& release, RunStats* stats) const;

  const std::shared_ptr<const TfLibrary> library_;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  TfOptions options_;
  Lanes<Lane> lanes_;  // without devices a single one, which runs share
  tf::TF_Graph* graph_ = nullptr;
  tf::TF_Session* session_ = nullptr;
};

}  // namespace lambda_svc
