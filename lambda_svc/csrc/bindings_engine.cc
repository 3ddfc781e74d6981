// Bindings of the engines: their libraries and executables. No logic here.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "lambda_svc/csrc/allocator.h"
#include "lambda_svc/csrc/bindings.h"
#include "lambda_svc/csrc/borrowed_feeds.h"
#include "lambda_svc/csrc/ov_executable.h"
#include "lambda_svc/csrc/py_executable.h"
#include "lambda_svc/csrc/tf_executable.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lambda_svc {
namespace {

using InputTuple = std::tuple<std::string, std::string, std::vector<std::int64_t>>;
using OutputTuple = std::tuple<std::string, std::vector<std::int64_t>>;
using FetchTuple = std::tuple<std::string, std::string, std::vector<std::int64_t>>;

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

std::vector<TensorSpec> specs_of(const std::vector<InputTuple>& inputs) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, dtype, shape] : inputs) specs.push_back({name, dtype_of(name, dtype), shape});
  return specs;
}

std::vector<TensorSpec> specs_of(const std::vector<OutputTuple>& outputs) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, shape] : outputs) specs.push_back({name, DType::kF32, shape});
  return specs;
}

std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::shared_ptr<TfExecutable> load(const std::shared_ptr<TfLibrary>& library, const nb::bytes& graph_def,
                                   const std::vector<InputTuple>& inputs, const std::vector<OutputTuple>& outputs,
                                   const nb::bytes& config_proto, const nb::bytes& run_options,
                                   const std::vector<std::string>& once, const std::vector<std::string>& devices) {
  std::vector<TensorSpec> specs = specs_of(inputs);
  const std::string graph = text_of(graph_def);
  TfOptions options{text_of(config_proto), text_of(run_options), once, devices};
  const std::vector<TensorSpec> fetched = specs_of(outputs);
  const nb::gil_scoped_release release;
  return std::make_shared<TfExecutable>(library, graph, std::move(specs), fetched, std::move(options));
}

std::shared_ptr<OvExecutable> load_openvino(const std::shared_ptr<OvLibrary>& library, const nb::bytes& graph_def,
                                            const std::vector<InputTuple>& inputs, const std::vector<bool>& read,
                                            const std::vector<FetchTuple>& outputs,
                                            const std::string& precision, std::size_t lanes, std::size_t threads) {
  std::vector<TensorSpec> specs = specs_of(inputs);
  std::vector<OvOutput> fetched;
  for (const auto& [name, fetch, shape] : outputs) fetched.push_back({{name, DType::kF32, shape}, fetch});
  const std::string graph = text_of(graph_def);
  const nb::gil_scoped_release release;
  return std::make_shared<OvExecutable>(library, graph, std::move(specs), read, std::move(fetched),
                                        OvOptions{precision, lanes, threads});
}

// A NumPy array over a feed's memory.
nb::object array_over(const TensorSpec& spec, const Feed& feed) {
  const std::vector<std::size_t> shape(feed.dims, feed.dims + feed.rank);
  const nb::object none = nb::none();
  switch (spec.dtype) {
    case DType::kI64:
      return nb::cast(nb::ndarray<nb::numpy, const std::int64_t>(feed.data, shape.size(), shape.data(), none));
    case DType::kI32:
      return nb::cast(nb::ndarray<nb::numpy, const std::int32_t>(feed.data, shape.size(), shape.data(), none));
    default:
      return nb::cast(nb::ndarray<nb::numpy, const float>(feed.data, shape.size(), shape.data(), none));
  }
}

// Calls `function(list of arrays) -> sequence of float32 arrays`, one for each output.
void call_python(const nb::object& function, const std::vector<TensorSpec>& specs, std::size_t outputs,
                 const Feed* feeds, const PyExecutable::Take& take) {
  const nb::gil_scoped_acquire gil;
  try {
    nb::list arrays;
    for (std::size_t i = 0; i < specs.size(); ++i) arrays.append(array_over(specs[i], feeds[i]));
    const nb::object result = function(arrays);
    for (std::size_t i = 0; i < outputs; ++i) {
      const auto value = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(result[i]);
      std::vector<std::int64_t> shape;
      for (std::size_t d = 0; d < value.ndim(); ++d) shape.push_back(static_cast<std::int64_t>(value.shape(d)));
      take(i, {value.data(), std::move(shape)});
    }
  } catch (const nb::python_error& error) {
    throw EngineError(std::string("the graph does not run: ") + nb::str(error.value()).c_str());
  } catch (const nb::cast_error&) {
    throw EngineError("the graph does not run: an output is no float32 array");
  }
}

std::shared_ptr<PyExecutable> load_python(const nb::callable& function, const std::vector<InputTuple>& inputs,
                                          const std::vector<OutputTuple>& outputs) {
  const std::vector<TensorSpec> specs = specs_of(inputs);
  // The last copy may go on a thread without the GIL.
  const std::shared_ptr<nb::object> held(new nb::object(function), [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  return std::make_shared<PyExecutable>(
      specs, specs_of(outputs),
      [held, specs, count = outputs.size()](const Feed* feeds, const PyExecutable::Take& take) {
        call_python(*held, specs, count, feeds, take);
      });
}

// A float32 array of `shape` and its memory.
std::pair<nb::object, float*> new_array(const std::vector<std::size_t>& shape) {
  std::size_t values = 1;
  for (const std::size_t size : shape) values *= size;
  auto* out = new float[values + 1];
  const nb::capsule owner(out, [](void* pointer) noexcept { delete[] static_cast<float*>(pointer); });
  return {nb::cast(nb::ndarray<nb::numpy, float>(out, shape.size(), shape.data(), owner)), out};
}

// Calls `run(feeds, release, stats)` without the GIL on arrays; returns the bytes of feeds that were copied.
template <class Run>
std::size_t run_with(const Executable& executable, const std::vector<nb::object>& feeds, const Run& run) {
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
  RunStats stats;
  const nb::gil_scoped_release release;
  BorrowedFeeds borrowed;
  run(views.data(), borrowed.release(), &stats);
  return stats.bytes_copied;
}

// Runs on arrays, writing to `outs`; returns the bytes of feeds that were copied.
std::size_t run_into(const Executable& executable, const std::vector<nb::object>& feeds, std::size_t rows,
                     const std::vector<float*>& outs) {
  return run_with(executable, feeds, [&](const Feed* fed, const FeedRelease& release, RunStats* stats) {
    executable.run(fed, release, outs.data(), rows, stats);
  });
}

nb::tuple run(const Executable& executable, const std::vector<nb::object>& feeds, std::size_t rows) {
  const std::size_t heads = executable.outputs().size();
  for (const TensorSpec& spec : executable.outputs()) {
    if (spec.shape.size() == 1 && spec.shape[0] < 0) continue;
    throw EngineError("output " + spec.name + " has shape " + shape_text(spec.shape) + ", not a score a row; fetch it");
  }
  const auto [scores, memory] = new_array({heads, rows});
  std::vector<float*> outs;
  for (std::size_t h = 0; h < heads; ++h) outs.push_back(memory + h * rows);
  return nb::make_tuple(scores, run_into(executable, feeds, rows, outs));
}

// An array for each output, and their memory.
std::pair<nb::list, std::vector<float*>> new_outputs(const Executable& executable, std::size_t rows) {
  nb::list arrays;
  std::vector<float*> outs;
  for (const TensorSpec& spec : executable.outputs()) {
    std::vector<std::size_t> shape;
    for (const std::int64_t size : spec.shape) shape.push_back(size < 0 ? rows : static_cast<std::size_t>(size));
    const auto [array, memory] = new_array(shape);
    arrays.append(array);
    outs.push_back(memory);
  }
  return {arrays, outs};
}

nb::tuple fetch(const Executable& executable, const std::vector<nb::object>& feeds, std::size_t rows) {
  const auto [arrays, outs] = new_outputs(executable, rows);
  return nb::make_tuple(arrays, run_into(executable, feeds, rows, outs));
}

nb::tuple trace(const TfExecutable& executable, const std::vector<nb::object>& feeds, std::size_t rows,
                std::size_t lane, const nb::bytes& run_options) {
  const auto outputs = new_outputs(executable, rows);
  const std::string options = text_of(run_options);
  std::string metadata;
  run_with(executable, feeds, [&](const Feed* fed, const FeedRelease& release, RunStats* stats) {
    metadata = executable.trace(fed, release, outputs.second.data(), rows, stats, lane, options);
  });
  return nb::make_tuple(outputs.first, nb::bytes(metadata.data(), metadata.size()));
}

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

// What every executable offers beside its constructor.
template <class T>
void bind_executable(nb::class_<T>& bound) {
  bound.def_prop_ro("capsule", [](const std::shared_ptr<T>& executable) {
         return to_capsule<Executable>(executable, kExecutableCapsule);
       }, "The executable for a Pipeline.")
      .def_prop_ro("inputs", [](const T& executable) { return names_of(executable.inputs()); })
      .def_prop_ro("outputs", [](const T& executable) { return names_of(executable.outputs()); })
      .def("run", [](const T& executable, const std::vector<nb::object>& feeds, std::size_t rows) {
             return run(executable, feeds, rows);
           }, "feeds"_a, "rows"_a,
           "Runs once on arrays in input order; returns (float32 [heads, rows], bytes of feeds copied because they "
           "were not 64-byte aligned). Raises EngineError, InvalidRequest for an array of another dtype.")
      .def("fetch", [](const T& executable, const std::vector<nb::object>& feeds, std::size_t rows) {
             return fetch(executable, feeds, rows);
           }, "feeds"_a, "rows"_a, "The same for outputs of any shape: returns (a float32 array for each, bytes).");
}

void bind_tensorflow(nb::module_& module) {
  nb::class_<TfLibrary>(module, "TensorFlowLibrary",
                        "TensorFlow's C API opened from two library files, one per process, never closed.\n\n"
                        "Raises EngineUnavailable: CPU features missing, a file or symbol missing, a second library.")
      .def(nb::new_([](const std::string& cc_path, const std::string& framework_path) {
             const nb::gil_scoped_release release;
             return std::const_pointer_cast<TfLibrary>(TfLibrary::open(cc_path, framework_path));
           }), "cc_path"_a, "framework_path"_a)
      .def_prop_ro("version", [](const TfLibrary& library) { return std::string(library.TF_Version()); })
      .def_prop_ro("cc_path", &TfLibrary::cc_path);
  nb::class_<TfExecutable> executable(
      module, "TensorFlowExecutable",
      "A graph in a TensorFlow session. Thread-safe.\n\n"
      "inputs: (name, 'f32' | 'i64' | 'i32', shape with -1 for candidates); outputs: (name, shape), float32, [-1] for "
      "a score a candidate; config_proto, run_options: serialised messages; once: nodes that run now, one after "
      "another; devices: each gets a copy of the graph and is a lane, none leaves placement to TensorFlow. Raises "
      "EngineError naming the input or output that does not fit, or the node that does not run.");
  executable.def(nb::new_(&load), "library"_a, "graph_def"_a, "inputs"_a, "outputs"_a,
                 "config_proto"_a = nb::bytes("", 0), "run_options"_a = nb::bytes("", 0),
                 "once"_a = std::vector<std::string>(), "devices"_a = std::vector<std::string>());
  bind_executable(executable);
  executable.def_prop_ro("lane_runs", &TfExecutable::lane_runs, "How often each lane ran so far.")
      .def("trace", &trace, "feeds"_a, "rows"_a, "lane"_a, "run_options"_a,
           "Runs on this lane with other run options; returns (a float32 array for each output, the serialised "
           "tensorflow.RunMetadata that the options ask for). Raises EngineError.");
}

void bind_openvino(nb::module_& module) {
  nb::class_<OvLibrary>(module, "OpenVinoLibrary",
                        "OpenVINO's C API opened from its library file, one per process, never closed.\n\n"
                        "Raises EngineUnavailable: a file or symbol missing, a second library.")
      .def(nb::new_([](const std::string& path) {
             const nb::gil_scoped_release release;
             return std::const_pointer_cast<OvLibrary>(OvLibrary::open(path));
           }), "path"_a)
      .def_prop_ro("version", &OvLibrary::version);
  nb::class_<OvExecutable> executable(
      module, "OpenVinoExecutable",
      "A graph compiled by OpenVINO. Thread-safe.\n\n"
      "inputs: as of TensorFlowExecutable; read: for each, whether the graph has it; outputs: (name, fetched tensor at "
      "an end of the graph, shape); precision: 'f32' | 'bf16'; threads: of all lanes together. Raises EngineError "
      "naming the input or output that does not fit, EngineUnavailable for a precision that this CPU lacks.");
  executable.def(nb::new_(&load_openvino), "library"_a, "graph_def"_a, "inputs"_a, "read"_a, "outputs"_a,
                 nb::kw_only(), "precision"_a, "lanes"_a, "threads"_a);
  bind_executable(executable);
}

void bind_python(nb::module_& module) {
  nb::class_<PyExecutable> executable(
      module, "PythonExecutable",
      "A graph in an engine that only Python can ask. Thread-safe; each run takes the GIL.\n\n"
      "function: called with a list of arrays over the feeds, which it must not keep; returns float32 arrays, one for "
      "each output. What it raises becomes EngineError.");
  executable.def(nb::new_(&load_python), "function"_a, "inputs"_a, "outputs"_a);
  bind_executable(executable);
}

}  // namespace

void bind_engine(nb::module_& module) {
  module.def("keep_freed_memory", &keep_freed_memory, "heaps"_a,
             "Has glibc keep what is freed, in at most `heaps` heaps, so that runs of an engine do not fault it in "
             "anew; for the whole process. No effect on jemalloc.");
  module.def("return_freed_memory", [] {
        const nb::gil_scoped_release release;
        return_freed_memory();
      }, "Gives back to the system what is freed and kept, after a model is let go of. No effect on jemalloc.");
  bind_tensorflow(module);
  bind_openvino(module);
  bind_python(module);
}

}  // namespace lambda_svc
