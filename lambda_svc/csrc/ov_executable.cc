#include "lambda_svc/csrc/ov_executable.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "lambda_svc/csrc/feeds.h"
#include "lambda_svc/csrc/outputs.h"

namespace lambda_svc {
namespace {

// An object of OpenVINO's, freed whatever happens.
template <class T>
class Owned {
 public:
  explicit Owned(void (*free)(T*)) : free_(free) {}
  ~Owned() {
    if (object_ != nullptr) free_(object_);
  }
  Owned(const Owned&) = delete;
  T** out() { return &object_; }
  T* get() const { return object_; }

 private:
  void (*free_)(T*);
  T* object_ = nullptr;
};

// Shapes that a port tells, freed whatever happens.
class PortShape {
 public:
  PortShape(const OvLibrary& library, const ov::ov_output_const_port_t* port) : library_(library) {
    library_.check(library_.ov_port_get_partial_shape(port, &shape_), "shape");
  }
  ~PortShape() { library_.ov_partial_shape_free(&shape_); }
  PortShape(const PortShape&) = delete;
  bool ranked() const { return shape_.rank.min == shape_.rank.max && shape_.rank.min >= 0; }
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes;
    for (std::int64_t d = 0; ranked() && d < shape_.rank.min; ++d) {
      const ov::ov_dimension_t size = shape_.dims[d];
      sizes.push_back(size.min == size.max ? size.min : -1);
    }
    return sizes;
  }

 private:
  const OvLibrary& library_;
  ov::ov_partial_shape_t shape_{};
};

// A file in memory, by a path that OpenVINO can open: its own way of reading from memory knows no GraphDef.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : descriptor_(memfd_create("graph.pb", MFD_CLOEXEC)) {
    std::size_t written = 0;
    while (descriptor_ >= 0 && written < content.size()) {
      const ssize_t now = write(descriptor_, content.data() + written, content.size() - written);
      if (now <= 0) break;
      written += static_cast<std::size_t>(now);
    }
    if (descriptor_ >= 0 && written == content.size()) return;
    if (descriptor_ >= 0) close(descriptor_);
    throw EngineError("the graph does not load: no memory for a copy of " + std::to_string(content.size()) + " bytes");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

std::string tensor_name(const std::string& name) {
  return name.find(':') == std::string::npos ? name + ":0" : name;
}

ov::ov_element_type_e element_type(const TensorSpec& spec) {
  switch (spec.dtype) {
    case DType::kF32: return ov::F32;
    case DType::kI64: return ov::I64;
    case DType::kI32: return ov::I32;
    case DType::kBytes: break;
  }
  throw EngineError("input " + spec.name + ": bytes cannot be fed; expected f32, i64 or i32");
}

// OpenVINO's CPU kernels compute int64 in 32 bits and drop the rest: an id of 2^32 would be taken for 0.
void check_narrow(const TensorSpec& spec, const Feed& feed) {
  using Narrow = std::numeric_limits<std::int32_t>;
  const auto* bytes = static_cast<const char*>(feed.data);
  for (std::size_t at = 0; at < feed.bytes; at += sizeof(std::int64_t)) {
    std::int64_t value;
    std::memcpy(&value, bytes + at, sizeof value);
    if (value >= Narrow::min() && value <= Narrow::max()) continue;
    throw EngineError("input " + spec.name + ": got " + std::to_string(value) +
                      "; OpenVINO computes int64 in 32 bits, use another engine for this graph");
  }
}

}  // namespace

OvExecutable::OvExecutable(std::shared_ptr<const OvLibrary> library, const std::string& graph_def,
                           std::vector<TensorSpec> inputs, std::vector<bool> read, std::vector<OvOutput> outputs,
                           const OvOptions& options)
    : library_(std::move(library)), inputs_(std::move(inputs)), read_(std::move(read)) {
  Owned<ov::ov_model_t> model(library_->ov_model_free);
  try {
    *model.out() = read_model(graph_def);
    check_inputs(model.get());
    reshape(model.get());
    compile(model.get(), options);
    find_ports(outputs);
  } catch (...) {
    close();
    throw;
  }
}

OvExecutable::~OvExecutable() { close(); }

void OvExecutable::close() noexcept {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_.at(i).request != nullptr) library_->ov_infer_request_free(lanes_.at(i).request);
  }
  lanes_.clear();
  for (auto* ports : {&input_ports_, &output_ports_}) {
    for (ov::ov_output_const_port_t* port : *ports) {
      if (port != nullptr) library_->ov_output_const_port_free(port);
    }
    ports->clear();
  }
  if (compiled_ != nullptr) library_->ov_compiled_model_free(std::exchange(compiled_, nullptr));
}

ov::ov_model_t* OvExecutable::read_model(const std::string& graph_def) const {
  const MemoryFile file(graph_def);
  ov::ov_model_t* model = nullptr;
  library_->check(library_->ov_core_read_model(library_->core(), file.path().c_str(), nullptr, &model),
                  "the graph does not load");
  return model;
}

void OvExecutable::check_inputs(const ov::ov_model_t* model) const {
  std::size_t wanted = 0, fed = 0;
  library_->check(library_->ov_model_inputs_size(model, &wanted), "inputs");
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!read_[i]) continue;
    check_input(model, inputs_[i]);
    ++fed;
  }
  for (std::size_t i = 0; fed < wanted && i < wanted; ++i) {
    Owned<ov::ov_output_const_port_t> port(library_->ov_output_const_port_free);
    library_->check(library_->ov_model_const_input_by_index(model, i, port.out()), "inputs");
    char* name = nullptr;
    library_->check(library_->ov_port_get_any_name(port.get(), &name), "inputs");
    const std::string needed(name);
    library_->ov_free(name);
    bool known = false;
    for (const TensorSpec& spec : inputs_) known |= tensor_name(spec.name) == tensor_name(needed);
    if (!known) throw EngineError("input " + needed + ": the graph needs it and the signature does not feed it");
  }
}

void OvExecutable::check_input(const ov::ov_model_t* model, const TensorSpec& spec) const {
  const ov::ov_element_type_e wanted = element_type(spec);
  Owned<ov::ov_output_const_port_t> port(library_->ov_output_const_port_free);
  library_->check(library_->ov_model_const_input_by_name(model, tensor_name(spec.name).c_str(), port.out()),
                  "input " + spec.name);
  ov::ov_element_type_e type{};
  library_->check(library_->ov_port_get_element_type(port.get(), &type), "input " + spec.name);
  if (type != wanted) {
    throw EngineError("input " + spec.name + ": the graph has OpenVINO dtype " + std::to_string(type) +
                      "; the signature says " + std::to_string(wanted));
  }
  const PortShape shape(*library_, port.get());
  const std::vector<std::int64_t> sizes = shape.sizes();
  bool fits = !shape.ranked() || sizes.size() == spec.shape.size();
  for (std::size_t d = 0; fits && d < sizes.size(); ++d) fits = sizes[d] < 0 || sizes[d] == spec.shape[d];
  if (fits) return;
  throw EngineError("input " + spec.name + ": the graph has shape " + shape_text(sizes) + "; the signature says " +
                    shape_text(spec.shape));
}

// Only the number of candidates stays open: whatever else is known lets OpenVINO compile for it.
void OvExecutable::reshape(const ov::ov_model_t* model) const {
  std::vector<std::string> names;
  std::vector<std::vector<ov::ov_dimension_t>> dims;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!read_[i]) continue;
    names.push_back(tensor_name(inputs_[i].name));
    dims.emplace_back();
    for (const std::int64_t size : inputs_[i].shape) dims.back().push_back({size, size});
  }
  std::vector<const char*> pointers;
  std::vector<ov::ov_partial_shape_t> shapes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto rank = static_cast<std::int64_t>(dims[i].size());
    pointers.push_back(names[i].c_str());
    shapes.push_back({{rank, rank}, dims[i].data()});
  }
  if (names.empty()) return;
  library_->check(library_->ov_model_reshape(model, pointers.data(), shapes.data(), shapes.size()),
                  "the graph does not take the signature's shapes");
}

void OvExecutable::compile(const ov::ov_model_t* model, const OvOptions& options) {
  const std::string lanes = std::to_string(options.lanes), threads = std::to_string(options.threads);
  // Pinning would bind lanes to the same cores in every process of a host; dynamic quantization would change scores.
  const ov::ov_property_t properties[] = {{"NUM_STREAMS", lanes.c_str()},
                                          {"INFERENCE_NUM_THREADS", threads.c_str()},
                                          {"INFERENCE_PRECISION_HINT", options.precision.c_str()},
                                          {"EXECUTION_MODE_HINT", "PERFORMANCE"},
                                          {"ENABLE_CPU_PINNING", "NO"},
                                          {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"}};
  library_->check(library_->ov_core_compile_model_props(library_->core(), model, "CPU", std::size(properties),
                                                        properties, &compiled_),
                  "the graph does not compile");
  char* text = nullptr;
  library_->check(library_->ov_compiled_model_get_property(compiled_, "INFERENCE_PRECISION_HINT", &text), "precision");
  const std::string precision(text);
  library_->ov_free(text);
  if (precision != options.precision) {
    throw EngineUnavailable("precision " + options.precision + ": OpenVINO computes in " + precision +
                            " on this CPU; choose that");
  }
  for (std::size_t i = 0; i < options.lanes; ++i) {
    Lane& lane = lanes_.add();
    lane.copies.resize(inputs_.size());
    library_->check(library_->ov_compiled_model_create_infer_request(compiled_, &lane.request), "lanes");
  }
}

void OvExecutable::find_ports(const std::vector<OvOutput>& outputs) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    input_ports_.push_back(nullptr);
    if (!read_[i]) continue;
    library_->check(library_->ov_compiled_model_input_by_name(compiled_, tensor_name(inputs_[i].name).c_str(),
                                                              &input_ports_.back()),
                    "input " + inputs_[i].name);
  }
  for (const OvOutput& output : outputs) {
    output_ports_.push_back(nullptr);
    library_->check(library_->ov_compiled_model_output_by_name(compiled_, output.fetch.c_str(), &output_ports_.back()),
                    "output " + output.spec.name);
    check_output(output.spec, output_ports_.back());
    outputs_.push_back(output.spec);
  }
}

void OvExecutable::check_output(const TensorSpec& spec, const ov::ov_output_const_port_t* port) {
  ov::ov_element_type_e type{};
  library_->check(library_->ov_port_get_element_type(port, &type), "output " + spec.name);
  if (type != ov::F32) {
    throw EngineError("output " + spec.name + ": the graph has OpenVINO dtype " + std::to_string(type) +
                      "; expected float32");
  }
  const PortShape shape(*library_, port);
  if (shape.ranked()) check_output_shape(spec, shape.sizes());
}

void OvExecutable::feed(Lane& lane, std::size_t input, const Feed& feed, RunStats* stats) const {
  const TensorSpec& spec = inputs_[input];
  check_feed(spec, feed);
  if (spec.dtype == DType::kI64) check_narrow(spec, feed);
  // OpenVINO only reads a feed; its C API merely lacks the const.
  void* data = const_cast<void*>(lane.copies[input].aligned(feed, stats));
  Owned<ov::ov_tensor_t> tensor(library_->ov_tensor_free);
  const ov::ov_shape_t shape{feed.rank, const_cast<std::int64_t*>(feed.dims)};
  library_->check(library_->ov_tensor_create_from_host_ptr(element_type(spec), shape, data, tensor.out()),
                  "input " + spec.name);
  library_->check(library_->ov_infer_request_set_tensor_by_const_port(lane.request, input_ports_[input], tensor.get()),
                  "input " + spec.name);
}

void OvExecutable::fetch(const Lane& lane, std::size_t output, float* out, std::size_t rows) const {
  const std::string doing = "output " + outputs_[output].name;
  Owned<ov::ov_tensor_t> tensor(library_->ov_tensor_free);
  library_->check(
      library_->ov_infer_request_get_tensor_by_const_port(lane.request, output_ports_[output], tensor.out()), doing);
  std::size_t size = 0;
  void* data = nullptr;
  library_->check(library_->ov_tensor_get_size(tensor.get(), &size), doing);
  check_values(outputs_[output], size, rows);
  if (size == 0) return;
  library_->check(library_->ov_tensor_data(tensor.get(), &data), doing);
  std::memcpy(out, data, size * sizeof(float));
}

void OvExecutable::run(const Feed* feeds, const FeedRelease& release, float* const* outs, std::size_t rows,
                       RunStats* stats) const {
  const auto taken = lanes_.take();
  Lane& lane = taken.lane;
  HeldFeeds held(release);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!read_[i]) continue;
    held.add();
    feed(lane, i, feeds[i], stats);
  }
  library_->check(library_->ov_infer_request_infer(lane.request), "the graph does not run");
  for (std::size_t i = 0; i < outputs_.size(); ++i) fetch(lane, i, outs[i], rows);
}

}  // namespace lambda_svc
