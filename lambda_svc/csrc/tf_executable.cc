#include "lambda_svc/csrc/tf_executable.h"

#include <charconv>
#include <cstring>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/outputs.h"

namespace lambda_svc {
namespace {

using tf::TF_Tensor;

// A TF_Status that turns into an EngineError carrying TensorFlow's message.
class Status {
 public:
  explicit Status(const TfLibrary& library) : library_(library), status_(library.TF_NewStatus()) {}
  ~Status() { library_.TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  operator tf::TF_Status*() const { return status_; }
  void check(const std::string& doing) const {
    if (library_.TF_GetCode(status_) == tf::TF_OK) return;
    throw EngineError(doing + ": " + library_.TF_Message(status_));
  }

 private:
  const TfLibrary& library_;
  tf::TF_Status* status_;
};

// The tensors of one run, deleted whatever happens.
class Tensors {
 public:
  Tensors(const TfLibrary& library, std::size_t n) : library_(library), all_(n, nullptr) {}
  ~Tensors() { clear(); }
  Tensors(const Tensors&) = delete;
  TF_Tensor*& operator[](std::size_t i) { return all_[i]; }
  TF_Tensor** data() { return all_.data(); }
  void clear() {
    for (TF_Tensor*& tensor : all_) {
      if (tensor != nullptr) library_.TF_DeleteTensor(std::exchange(tensor, nullptr));
    }
  }

 private:
  const TfLibrary& library_;
  std::vector<TF_Tensor*> all_;
};

tf::TF_DataType tf_type(const TensorSpec& spec) {
  switch (spec.dtype) {
    case DType::kF32: return tf::TF_FLOAT;
    case DType::kI64: return tf::TF_INT64;
    case DType::kI32: return tf::TF_INT32;
    case DType::kBytes: break;
  }
  throw EngineError("input " + spec.name + ": bytes cannot be fed; expected f32, i64 or i32");
}

std::size_t item_bytes(tf::TF_DataType type) { return type == tf::TF_INT64 ? 8 : 4; }

struct FeedOwner {
  void (*release)(void*);
  void* owner;
};

}  // namespace

TfExecutable::TfExecutable(std::shared_ptr<const TfLibrary> library, const std::string& graph_def,
                           std::vector<TensorSpec> inputs, const std::vector<TensorSpec>& outputs, TfOptions options)
    : library_(std::move(library)), inputs_(std::move(inputs)), outputs_(outputs), options_(std::move(options)) {
  if (outputs.empty()) throw EngineError("outputs: got none; expected at least one head");
  if (!options_.devices.empty() && !options_.once.empty()) {
    throw EngineError("devices: a graph with initialisers (" + options_.once[0] + ") cannot be copied onto devices");
  }
  try {
    graph_ = library_->TF_NewGraph();
    if (options_.devices.empty()) add_lane(graph_def, "", outputs);
    for (const std::string& device : options_.devices) add_lane(graph_def, device, outputs);
    open_session();
    check_devices();
    for (const std::string& node : options_.once) run_once(node);
  } catch (...) {
    close();
    throw;
  }
}

TfExecutable::~TfExecutable() { close(); }

void TfExecutable::close() noexcept {
  const Status status(*library_);
  if (session_ != nullptr) {
    library_->TF_CloseSession(session_, status);
    library_->TF_DeleteSession(session_, status);
  }
  if (graph_ != nullptr) library_->TF_DeleteGraph(graph_);
  session_ = nullptr;
  graph_ = nullptr;
}

void TfExecutable::add_lane(const std::string& graph_def, const std::string& device,
                            const std::vector<TensorSpec>& outputs) {
  Lane& lane = lanes_.add();
  const std::string prefix = device.empty() ? "" : "lane_" + std::to_string(lanes_.size() - 1);
  lane.prefix = device.empty() ? "" : prefix + "/";
  import_graph(graph_def, prefix, device);
  for (const TensorSpec& spec : inputs_) check_input(spec, &lane);
  for (const TensorSpec& spec : outputs) check_output(spec, &lane);
}

void TfExecutable::import_graph(const std::string& graph_def, const std::string& prefix, const std::string& device) {
  const Status status(*library_);
  tf::TF_Buffer* buffer = library_->TF_NewBufferFromString(graph_def.data(), graph_def.size());
  tf::TF_ImportGraphDefOptions* options = library_->TF_NewImportGraphDefOptions();
  if (!device.empty()) {
    library_->TF_ImportGraphDefOptionsSetPrefix(options, prefix.c_str());
    library_->TF_ImportGraphDefOptionsSetDefaultDevice(options, device.c_str());
  }
  library_->TF_GraphImportGraphDef(graph_, buffer, options, status);
  library_->TF_DeleteImportGraphDefOptions(options);
  library_->TF_DeleteBuffer(buffer);
  status.check("the graph does not load");
}

tf::TF_Output TfExecutable::endpoint(const Lane& lane, const std::string& name, const char* what) const {
  const std::size_t colon = name.rfind(':');
  int index = 0;
  if (colon != std::string::npos) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + colon + 1, end, index);
    if (parsed.ec != std::errc() || parsed.ptr != end || index < 0) {
      throw EngineError(std::string(what) + " " + name + ": expected NODE or NODE:INDEX");
    }
  }
  const std::string node = lane.prefix + name.substr(0, colon);
  tf::TF_Operation* operation = library_->TF_GraphOperationByName(graph_, node.c_str());
  if (operation == nullptr) throw EngineError(std::string(what) + " " + name + ": the graph has no such node");
  if (index >= library_->TF_OperationNumOutputs(operation)) {
    throw EngineError(std::string(what) + " " + name + ": the node has only " +
                      std::to_string(library_->TF_OperationNumOutputs(operation)) + " outputs");
  }
  return {operation, index};
}

std::vector<std::int64_t> TfExecutable::shape_of(tf::TF_Output output, bool* known) const {
  const Status status(*library_);
  const int rank = library_->TF_GraphGetTensorNumDims(graph_, output, status);
  status.check("shape");
  *known = rank >= 0;
  std::vector<std::int64_t> shape(rank > 0 ? rank : 0);
  if (rank > 0) library_->TF_GraphGetTensorShape(graph_, output, shape.data(), rank, status);
  status.check("shape");
  return shape;
}

void TfExecutable::check_input(const TensorSpec& spec, Lane* lane) const {
  const tf::TF_Output end = endpoint(*lane, spec.name, "input");
  const tf::TF_DataType type = library_->TF_OperationOutputType(end);
  if (type != tf_type(spec)) {
    throw EngineError("input " + spec.name + ": the graph has TensorFlow dtype " + std::to_string(type) +
                      "; the signature says " + std::to_string(tf_type(spec)));
  }
  bool known = false;
  const std::vector<std::int64_t> shape = shape_of(end, &known);
  bool fits = !known || shape.size() == spec.shape.size();
  for (std::size_t i = 0; known && fits && i < shape.size(); ++i) fits = shape[i] < 0 || shape[i] == spec.shape[i];
  if (!fits) {
    throw EngineError("input " + spec.name + ": the graph has shape " + shape_text(shape) + "; the signature says " +
                      shape_text(spec.shape));
  }
  lane->inputs.push_back(end);
}

void TfExecutable::check_output(const TensorSpec& spec, Lane* lane) const {
  const std::string& name = spec.name;
  const tf::TF_Output end = endpoint(*lane, name, "output");
  if (library_->TF_OperationOutputType(end) != tf::TF_FLOAT) {
    throw EngineError("output " + name + ": the graph has TensorFlow dtype " +
                      std::to_string(library_->TF_OperationOutputType(end)) + "; expected float32");
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (lane->inputs[i].oper != end.oper || lane->inputs[i].index != end.index) continue;
    throw EngineError("output " + name + ": it is also input " + inputs_[i].name + ", which TensorFlow refuses to run");
  }
  bool known = false;
  const std::vector<std::int64_t> shape = shape_of(end, &known);
  if (known) check_output_shape(spec, shape);
  lane->outputs.push_back(end);
}

void TfExecutable::open_session() {
  const Status status(*library_);
  tf::TF_SessionOptions* options = library_->TF_NewSessionOptions();
  library_->TF_SetConfig(options, options_.config_proto.data(), options_.config_proto.size(), status);
  if (library_->TF_GetCode(status) == tf::TF_OK) session_ = library_->TF_NewSession(graph_, options, status);
  library_->TF_DeleteSessionOptions(options);
  status.check("the session does not open");
}

void TfExecutable::run_once(const std::string& node) {
  const tf::TF_Operation* target = library_->TF_GraphOperationByName(graph_, node.c_str());
  if (target == nullptr) throw EngineError("initialiser " + node + ": the graph has no such node");
  const Status status(*library_);
  library_->TF_SessionRun(session_, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, &target, 1, nullptr, status);
  status.check("initialiser " + node + " does not run");
}

// A device that is missing would only be told by the first run, or never.
void TfExecutable::check_devices() const {
  if (options_.devices.empty()) return;
  const Status status(*library_);
  const std::unique_ptr<tf::TF_DeviceList, void (*)(tf::TF_DeviceList*)> found(
      library_->TF_SessionListDevices(session_, status), library_->TF_DeleteDeviceList);
  status.check("devices");
  std::string names;
  for (int i = 0; i < library_->TF_DeviceListCount(found.get()); ++i) {
    names += std::string(library_->TF_DeviceListName(found.get(), i, status)) + "\n";
  }
  for (const std::string& device : options_.devices) {
    if (names.find(device + "\n") != std::string::npos) continue;
    throw EngineUnavailable(device + ": TensorFlow has no such device here");
  }
}

tf::TF_Tensor* TfExecutable::feed_tensor(std::size_t input, const Feed& feed, const FeedRelease& release,
                                         RunStats* stats) const {
  const tf::TF_DataType type = tf_type(inputs_[input]);
  std::size_t elements = 1;
  for (int d = 0; d < feed.rank; ++d) elements *= static_cast<std::size_t>(feed.dims[d]);
  if (elements * item_bytes(type) != feed.bytes) {
    throw EngineError("input " + inputs_[input].name + ": got " + std::to_string(feed.bytes) + " bytes for " +
                      std::to_string(elements) + " values");
  }
  if (reinterpret_cast<std::uintptr_t>(feed.data) % kFeedAlignment != 0) {
    TF_Tensor* copy = library_->TF_AllocateTensor(type, feed.dims, feed.rank, feed.bytes);
    if (copy == nullptr) throw EngineError("input " + inputs_[input].name + ": no memory for an aligned copy");
    std::memcpy(library_->TF_TensorData(copy), feed.data, feed.bytes);
    if (stats != nullptr) stats->bytes_copied += feed.bytes;
    return copy;
  }
  auto* owner = new FeedOwner{release.release, release.owner};
  if (release.acquire != nullptr) release.acquire(release.owner);
  const auto let_go = [](void*, std::size_t, void* argument) {
    const std::unique_ptr<FeedOwner> done(static_cast<FeedOwner*>(argument));
    if (done->release != nullptr) done->release(done->owner);
  };
  // TensorFlow only reads a feed; its C API merely lacks the const.
  return library_->TF_NewTensor(type, feed.dims, feed.rank, const_cast<void*>(feed.data), feed.bytes, let_go, owner);
}

void TfExecutable::run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
                       RunStats* stats) const {
  if (options_.devices.empty()) {
    run_on(lanes_.at(0), feeds, release, outs, rows, stats, options_.run_options, nullptr);
    return;
  }
  const auto taken = lanes_.take();
  run_on(taken.lane, feeds, release, outs, rows, stats, options_.run_options, nullptr);
}

std::string TfExecutable::trace(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
                                RunStats* stats, std::size_t lane, const std::string& run_options) const {
  if (lane >= lanes_.size()) {
    throw EngineError("lane: got " + std::to_string(lane) + "; there are " + std::to_string(lanes_.size()));
  }
  const std::unique_ptr<tf::TF_Buffer, void (*)(tf::TF_Buffer*)> metadata(library_->TF_NewBuffer(),
                                                                          library_->TF_DeleteBuffer);
  const auto taken = lanes_.take(lane);
  run_on(taken.lane, feeds, release, outs, rows, stats, run_options, metadata.get());
  return {static_cast<const char*>(metadata->data), metadata->length};
}

std::vector<std::uint64_t> TfExecutable::lane_runs() const {
  std::vector<std::uint64_t> runs;
  for (std::size_t i = 0; i < lanes_.size(); ++i) runs.push_back(lanes_.at(i).runs.load(std::memory_order_relaxed));
  return runs;
}

void TfExecutable::run_on(Lane& lane, const Feed* feeds, const FeedRelease& release, float* const* outs,
                          std::size_t rows, RunStats* stats, const std::string& run_options,
                          tf::TF_Buffer* metadata) const {
  Tensors fed(*library_, inputs_.size());
  Tensors fetched(*library_, outputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) fed[i] = feed_tensor(i, feeds[i], release, stats);

  const tf::TF_Buffer options{run_options.data(), run_options.size(), nullptr};
  const Status status(*library_);
  library_->TF_SessionRun(session_, run_options.empty() ? nullptr : &options, lane.inputs.data(), fed.data(),
                          static_cast<int>(inputs_.size()), lane.outputs.data(), fetched.data(),
                          static_cast<int>(outputs_.size()), nullptr, 0, metadata, status);
  lane.runs.fetch_add(1, std::memory_order_relaxed);
  fed.clear();
  status.check("the graph does not run");
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const std::size_t bytes = library_->TF_TensorByteSize(fetched[i]);
    check_values(outputs_[i], bytes / sizeof(float), rows);
    std::memcpy(outs[i], library_->TF_TensorData(fetched[i]), bytes);
  }
}

}  // namespace lambda_svc
