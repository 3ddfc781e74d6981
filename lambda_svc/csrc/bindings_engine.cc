// Bindings of the TensorFlow library and executable. No logic here.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "lambda_svc/csrc/allocator.h"
#include "lambda_svc/csrc/bindings.h"
#include "lambda_svc/csrc/borrowed_feeds.h"
#include "lambda_svc/csrc/tf_executable.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lambda_svc {
namespace {

using InputTuple = std::tuple<std::string, std::string, std::vector<std::int64_t>>;

DType dtype_of(const std::string& input, const std::string& text) {
  if (text == "f32") return DType::kF32;
  if (text == "i64") return DType::kI64;
  if (text == "i32") return DType::kI32;
  throw EngineError("input " + input + ": dtype " + text + "; expected f32, i64 or i32");
}

// The struct-module codes of NumPy arrays that feed an input in place.
const char* formats_of(DType dtype) {
  if (dtype == DType::kI64) return "l q L Q";
  return dtype == DType::kI32 ? "i" : "f";
}

std::shared_ptr<TfExecutable> load(const std::shared_ptr<TfLibrary>& library, const nb::bytes& graph_def,
                                   const std::vector<InputTuple>& inputs, const std::vector<std::string>& outputs,
                                   const nb::bytes& config_proto, const nb::bytes& run_options) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, dtype, shape] : inputs) specs.push_back({name, dtype_of(name, dtype), shape});
  const std::string graph(graph_def.c_str(), graph_def.size());
  const std::string config(config_proto.c_str(), config_proto.size());
  const std::string options(run_options.c_str(), run_options.size());
  const nb::gil_scoped_release release;
  return std::make_shared<TfExecutable>(library, graph, std::move(specs), outputs, config, options);
}

nb::tuple run(const TfExecutable& executable, const std::vector<nb::object>& feeds, std::size_t rows) {
  if (feeds.size() != executable.inputs().size()) {
    throw EngineError("feeds: got " + std::to_string(feeds.size()) + "; expected one for each of " +
                      std::to_string(executable.inputs().size()) + " inputs");
  }
  std::vector<PyBuffer> held;
  std::vector<std::vector<std::int64_t>> dims;
  std::vector<Feed> views;
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const TensorSpec& spec = executable.inputs()[i];
    held.emplace_back(feeds[i], "input " + spec.name, formats_of(spec.dtype));
    const Py_buffer& view = held.back().view();
    dims.emplace_back(view.shape, view.shape + view.ndim);
    views.push_back({view.buf, static_cast<std::size_t>(view.len), nullptr, view.ndim});
  }
  for (std::size_t i = 0; i < views.size(); ++i) views[i].dims = dims[i].data();
  const std::size_t heads = executable.outputs().size();
  auto* out = new float[heads * rows + 1];
  const nb::capsule owner(out, [](void* pointer) noexcept { delete[] static_cast<float*>(pointer); });
  std::vector<float*> outs;
  for (std::size_t h = 0; h < heads; ++h) outs.push_back(out + h * rows);
  RunStats stats;
  {
    const nb::gil_scoped_release release;
    BorrowedFeeds borrowed;
    executable.run(views.data(), borrowed.release(), outs.data(), rows, &stats);
  }
  return nb::make_tuple(nb::ndarray<nb::numpy, float>(out, {heads, rows}, owner), stats.bytes_copied);
}

}  // namespace

void bind_engine(nb::module_& module) {
  module.def("keep_freed_memory", &keep_freed_memory, "heaps"_a,
             "Has glibc keep what is freed, in at most `heaps` heaps, so that runs of an engine do not fault it in "
             "anew; for the whole process. No effect on jemalloc.");
  nb::class_<TfLibrary>(module, "TensorFlowLibrary",
                        "TensorFlow's C API opened from two library files, one per process, never closed.\n\n"
                        "Raises EngineUnavailable: CPU features missing, a file or symbol missing, a second library.")
      .def(nb::new_([](const std::string& cc_path, const std::string& framework_path) {
             const nb::gil_scoped_release release;
             return std::const_pointer_cast<TfLibrary>(TfLibrary::open(cc_path, framework_path));
           }), "cc_path"_a, "framework_path"_a)
      .def_prop_ro("version", [](const TfLibrary& library) { return std::string(library.TF_Version()); })
      .def_prop_ro("cc_path", &TfLibrary::cc_path);
  nb::class_<TfExecutable>(module, "TensorFlowExecutable",
                           "A graph in a TensorFlow session. Thread-safe.\n\n"
                           "inputs: (name, 'f32' | 'i64' | 'i32', shape with -1 for candidates); outputs: names, each "
                           "float32 [n] or [n, 1]; config_proto, run_options: serialised messages. Raises EngineError "
                           "naming the input or output that does not fit.")
      .def(nb::new_(&load), "library"_a, "graph_def"_a, "inputs"_a, "outputs"_a, "config_proto"_a = nb::bytes("", 0),
           "run_options"_a = nb::bytes("", 0))
      .def_prop_ro("capsule", [](const std::shared_ptr<TfExecutable>& executable) {
             return to_capsule<Executable>(executable, kExecutableCapsule);
           }, "The executable for a Pipeline.")
      .def_prop_ro("inputs", [](const TfExecutable& executable) {
             std::vector<std::string> names;
             for (const TensorSpec& spec : executable.inputs()) names.push_back(spec.name);
             return names;
           })
      .def_prop_ro("outputs", [](const TfExecutable& executable) {
             std::vector<std::string> names;
             for (const TensorSpec& spec : executable.outputs()) names.push_back(spec.name);
             return names;
           })
      .def("run", &run, "feeds"_a, "rows"_a,
           "Runs once on arrays in input order; returns (float32 [heads, rows], bytes of feeds copied because they "
           "were not 64-byte aligned). Raises EngineError, InvalidRequest for an array of another dtype.");
}

}  // namespace lambda_svc
