// The Python face of the native core: conversions and nothing else. Python validates before it calls; what it hands
// over here is trusted as far as the C++ constructors trust it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "feature_store/csrc/errors.h"
#include "feature_store/csrc/extractor.h"
#include "feature_store/csrc/isa.h"
#include "feature_store/csrc/offsets.h"
#include "feature_store/csrc/xxh64.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace feature_store;

namespace {

using In = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;
template <class T>
using InOf = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutOf = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using ColumnTuple = std::tuple<In, std::optional<InOf<std::int32_t>>, std::optional<InOf<std::int32_t>>>;
using OutTuple = std::tuple<Out, std::optional<OutOf<std::int32_t>>, std::optional<OutOf<std::int32_t>>>;

// Shared pointers are held by value, so that a capsule can outlive the Python object and die on any thread.
struct PyCache {
  std::shared_ptr<const Cache> core;
};
struct PyExtractor {
  std::shared_ptr<const Extractor> core;
};

// The arrays that one feature's cells are built from, kept alive until the cache has copied them.
struct CellArrays {
  int dtype;
  bool ragged;
  std::uint32_t width;
  In values;
  std::optional<InOf<std::int64_t>> row_offsets, byte_offsets;
  InOf<std::uint8_t> present;
  In default_values;
  std::optional<InOf<std::int64_t>> default_byte_offsets;

  CellsView view() const {
    const auto data = [](const auto& part) { return part ? part->data() : nullptr; };
    return {static_cast<DType>(dtype), ragged, width, values.data(), values.nbytes(), data(row_offsets),
            data(byte_offsets), present.data(), default_values.data(), default_values.nbytes(),
            data(default_byte_offsets)};
  }
};

template <class Error>
bool translate(const std::exception_ptr& pointer, const char* name) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    PyErr_SetString(nb::module_::import_("feature_store.errors").attr(name).ptr(), error.what());
    return true;
  } catch (...) {
    return false;
  }
}

void translate_errors(const std::exception_ptr& pointer, void*) {
  if (translate<DataError>(pointer, "DataError") || translate<StorageError>(pointer, "StorageError") ||
      translate<IsaError>(pointer, "IsaError") || translate<ProgrammerError>(pointer, "ProgrammerError")) {
    return;
  }
  std::rethrow_exception(pointer);
}

PyCache build_cache(InOf<std::int64_t> keys, const std::vector<const CellArrays*>& columns) {
  std::vector<CellsView> views;
  for (const CellArrays* cells : columns) views.push_back(cells->view());
  nb::gil_scoped_release release;
  return {Cache::build(keys.data(), keys.size(), views)};
}

ColumnView column_view(const std::optional<ColumnTuple>& column) {
  if (!column) return {};
  const auto& [values, row_offsets, byte_offsets] = *column;
  return {true, values.data(), row_offsets ? row_offsets->data() : nullptr,
          byte_offsets ? byte_offsets->data() : nullptr};
}

std::tuple<std::uint64_t, std::uint64_t> gather(const PyExtractor& self, InOf<std::int64_t> keys,
                                                const std::vector<std::optional<ColumnTuple>>& columns,
                                                const std::vector<OutTuple>& outs, OutOf<std::uint8_t> known) {
  const Extractor& core = *self.core;
  std::vector<ColumnView> views;
  for (const auto& column : columns) views.push_back(column_view(column));
  std::vector<SlotOut> slots;
  for (const auto& [values, offsets, lengths] : outs) {
    core.require_room(slots.size(), keys.size(), values.nbytes(), offsets ? offsets->size() : 0,
                      lengths ? lengths->size() : 0);
    slots.push_back({values.data(), offsets ? offsets->data() : nullptr, lengths ? lengths->data() : nullptr});
  }
  if (views.size() != core.features().size() || slots.size() != core.slots().size() || known.size() != keys.size()) {
    throw ProgrammerError("extractor: columns, outs or known of a wrong size");
  }
  GatherStats stats;
  nb::gil_scoped_release release;
  core.gather(keys.data(), keys.size(), views.data(), slots.data(), known.data(), &stats);
  return {stats.cells, stats.cells_present};
}

nb::capsule capsule(const PyExtractor& self) {
  auto* source = new std::shared_ptr<const FeatureSource>(self.core);
  return nb::capsule(source, kFeatureSourceCapsule, [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<const FeatureSource>*>(pointer);
  });
}

// A view of any object with the buffer protocol for the length of a call.
class BufferView {
 public:
  explicit BufferView(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  const void* data() const { return view_.buf; }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_;
};

std::tuple<int, std::size_t, std::int64_t> check(nb::handle buffer, std::int64_t length_max) {
  const BufferView view(buffer);
  if (view.size() < 4) throw ProgrammerError("check_offsets: no offsets");
  nb::gil_scoped_release release;
  const OffsetsVerdict verdict = check_offsets(view.data(), view.size() / 4, length_max);
  return {static_cast<int>(verdict.problem), verdict.place, verdict.value};
}

std::uint64_t hash(nb::handle buffer, std::uint64_t seed) {
  const BufferView view(buffer);
  return xxh64(view.data(), view.size(), seed);
}

FeatureSpec feature_spec(const std::tuple<std::string, int, int, std::uint32_t>& parts) {
  const auto& [name, dtype, layout, width] = parts;
  return {name, static_cast<DType>(dtype), static_cast<Layout>(layout), width};
}

void init_extractor(PyExtractor* self, const std::vector<std::tuple<std::string, int, int, std::uint32_t>>& features,
                    const std::vector<SlotProgram>& programs, const PyCache& cache,
                    std::vector<std::int32_t> cache_columns, const std::string& isa) {
  std::vector<FeatureSpec> specs;
  for (const auto& parts : features) specs.push_back(feature_spec(parts));
  new (self) PyExtractor{std::make_shared<const Extractor>(std::move(specs), programs, cache.core,
                                                           std::move(cache_columns), choose_isa(isa))};
}

void init_program(SlotProgram* self, const std::tuple<std::string, int, int, std::uint32_t>& spec,
                  std::uint32_t feature, const std::vector<std::tuple<std::uint32_t, bool>>& cuts,
                  std::uint64_t hash_seed, const std::vector<std::tuple<int, float, float>>& float_ops,
                  std::vector<float> boundaries, const std::vector<std::tuple<std::uint32_t, std::uint64_t>>& crosses,
                  float pad_f32, std::int64_t pad_i64) {
  const auto& [name, dtype, layout, width] = spec;
  new (self) SlotProgram{{name, static_cast<DType>(dtype), static_cast<Layout>(layout), width},
                         {feature, {}, hash_seed}, {}, std::move(boundaries), {}, pad_f32, pad_i64};
  for (const auto& [length, keep_last] : cuts) self->load.cuts.push_back({length, keep_last});
  for (const auto& [kind, lo, hi] : float_ops) self->float_ops.push_back({static_cast<FloatOp::Kind>(kind), lo, hi});
  for (const auto& [other, seed] : crosses) self->crosses.push_back({other, seed});
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate_errors, nullptr);
  m.attr("KEY_COLUMN") = kKeyColumn;

  nb::class_<CellArrays>(m, "CellArrays")
      .def("__init__",
           [](CellArrays* self, int dtype, bool ragged, std::uint32_t width, In values,
              std::optional<InOf<std::int64_t>> row_offsets, std::optional<InOf<std::int64_t>> byte_offsets,
              InOf<std::uint8_t> present, In default_values,
              std::optional<InOf<std::int64_t>> default_byte_offsets) {
             new (self) CellArrays{dtype, ragged, width, values, row_offsets, byte_offsets, present, default_values,
                                   default_byte_offsets};
           },
           "dtype"_a, "ragged"_a, "width"_a, "values"_a.noconvert(), "row_offsets"_a.noconvert().none(),
           "byte_offsets"_a.noconvert().none(), "present"_a.noconvert(), "default_values"_a.noconvert(),
           "default_byte_offsets"_a.noconvert().none());

  nb::class_<PyCache>(m, "Cache")
      .def_prop_ro("rows", [](const PyCache& self) { return self.core->rows(); })
      .def_prop_ro("bytes", [](const PyCache& self) { return self.core->bytes(); })
      .def("find",
           [](const PyCache& self, InOf<std::int64_t> keys, OutOf<std::uint32_t> found) {
             if (found.size() != keys.size()) throw ProgrammerError("cache: found has a wrong size");
             nb::gil_scoped_release release;
             self.core->find(keys.data(), keys.size(), found.data());
           },
           "keys"_a.noconvert(), "found"_a.noconvert());
  m.def("build_cache", &build_cache, "keys"_a.noconvert(), "columns"_a);

  nb::class_<SlotProgram>(m, "SlotProgram")
      .def("__init__", &init_program, "spec"_a, "feature"_a, "cuts"_a, "hash_seed"_a, "float_ops"_a, "boundaries"_a,
           "crosses"_a, "pad_f32"_a, "pad_i64"_a);

  nb::class_<PyExtractor>(m, "Extractor")
      .def("__init__", &init_extractor, "features"_a, "programs"_a, "cache"_a, "cache_columns"_a, "isa"_a)
      .def("gather", &gather, "keys"_a.noconvert(), "columns"_a.noconvert(), "outs"_a.noconvert(),
           "known"_a.noconvert())
      .def("capsule", &capsule);

  m.def("check_offsets", &check, "buffer"_a, "length_max"_a);
  m.def("xxh64", &hash, "buffer"_a, "seed"_a);
  m.def("isas_available", [] {
    std::vector<std::string> names;
    for (const Isa isa : isas_available()) names.emplace_back(isa_name(isa));
    return names;
  });
  m.def("choose_isa", [](const std::string& name) { return std::string(isa_name(choose_isa(name))); }, "name"_a);
}
