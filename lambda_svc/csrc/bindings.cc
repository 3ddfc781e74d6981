// The extension module lambda_svc._core: arena, formula and the translation of errors. No logic here.
#include "lambda_svc/csrc/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lambda_svc/csrc/arena.h"
#include "lambda_svc/csrc/formula.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lambda_svc {
namespace {

template <class... Arguments>
void raise(const char* name, Arguments&&... arguments) {
  const nb::object type = nb::module_::import_("lambda_svc.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(std::forward<Arguments>(arguments)...).ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InvalidRequest& error) {
    raise("InvalidRequest", error.field, error.got, error.expected);
  } catch (const PlanError& error) {
    raise("PlanError", error.what(), error.field);
  } catch (const FormulaError& error) {
    raise("FormulaError", error.what(), error.position);
  } catch (const ArenaExhausted& error) {
    raise("ArenaExhausted", error.what());
  } catch (const DeadlineExceeded& error) {
    raise("DeadlineExceeded", error.what(), error.run_us);
  } catch (const Cancelled& error) {
    raise("Cancelled", error.what(), error.run_us);
  } catch (const EngineError& error) {
    raise("EngineError", error.what());
  } catch (const EngineUnavailable& error) {
    raise("EngineUnavailable", error.what());
  }
}

std::shared_ptr<Arena> make_arena(std::size_t bytes_max, std::size_t block_bytes, bool huge_pages) {
  return Arena::make({.bytes_max = bytes_max, .block_bytes = block_bytes, .huge_pages = huge_pages});
}

nb::ndarray<nb::numpy, double> evaluate(const Formula& formula, const std::vector<nb::object>& heads,
                                        const std::vector<nb::object>& inputs) {
  std::vector<PyBuffer> held;
  std::vector<const float*> head_values;
  std::vector<const void*> input_values;
  const auto take = [&held](const nb::object& column, const std::string& name) {
    held.emplace_back(column, name, "f");
    return held.back().get();
  };
  if (heads.size() != formula.heads().size() || inputs.size() != formula.inputs().size()) {
    throw InvalidRequest("formula", std::to_string(heads.size()) + " heads and " + std::to_string(inputs.size()) +
                                        " inputs", "those that it declares");
  }
  held.reserve(heads.size() + inputs.size());
  for (std::size_t i = 0; i < heads.size(); ++i) {
    head_values.push_back(static_cast<const float*>(take(heads[i], formula.heads()[i]).data));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) input_values.push_back(take(inputs[i], formula.inputs()[i]).data);
  const std::size_t n = held.empty() ? 1 : held.front().get().bytes / sizeof(float);
  for (const PyBuffer& column : held) {
    if (column.get().bytes != n * sizeof(float)) {
      throw InvalidRequest("formula", "columns of different lengths", "float32 [n] each");
    }
  }
  auto* out = new double[n == 0 ? 1 : n];
  const nb::capsule owner(out, [](void* pointer) noexcept { delete[] static_cast<double*>(pointer); });
  std::vector<double> scratch(formula.scratch_values());
  {
    const nb::gil_scoped_release release;
    formula.evaluate(head_values.data(), input_values.data(), n, out, scratch.data());
  }
  return nb::ndarray<nb::numpy, double>(out, {n}, owner);
}

void bind_arena(nb::module_& module) {
  nb::class_<ArenaStats>(module, "ArenaStats", "Counters of an Arena, in blocks and bytes.")
      .def_ro("leases", &ArenaStats::leases, "Blocks out now.")
      .def_ro("leases_total", &ArenaStats::leases_total, "Blocks ever handed out.")
      .def_ro("blocks_new", &ArenaStats::blocks_new, "Blocks taken from the system rather than from the pool.")
      .def_ro("leased_bytes", &ArenaStats::leased_bytes)
      .def_ro("pooled_bytes", &ArenaStats::pooled_bytes)
      .def_ro("peak_bytes", &ArenaStats::peak_bytes, "The most that was ever leased at once.")
      .def_ro("exhausted", &ArenaStats::exhausted, "Leases refused.");
  nb::class_<Arena>(module, "Arena",
                    "Pooled, 64-byte aligned memory for the tensors of requests. Thread-safe.\n\n"
                    "bytes_max bounds leased and pooled bytes together; block_bytes is the smallest block, a power of "
                    "two of at least 4096. Raises ValueError.")
      .def(nb::new_(&make_arena), nb::kw_only(), "bytes_max"_a, "block_bytes"_a = std::size_t{64} << 10,
           "huge_pages"_a = true)
      .def("stats", &Arena::stats, "A snapshot of the counters.")
      .def("trim", &Arena::trim, nb::call_guard<nb::gil_scoped_release>(), "Returns pooled blocks to the system.")
      .def("owns", [](const Arena& arena, std::uintptr_t address) {
             return arena.owns(reinterpret_cast<const void*>(address));
           }, "address"_a, "Whether the address lies in a block of this arena.");
}

void bind_formula(nb::module_& module) {
  nb::class_<Formula>(module, "Formula",
                      "A rank formula over head names, constants and per-candidate inputs: + - * / unary minus, "
                      "parentheses, pow exp log min max clip, in float64. Immutable.\n\n"
                      "Raises FormulaError with .position (0-based byte offset) and what was expected there.")
      .def(nb::new_([](std::string text, std::vector<std::string> heads, std::vector<std::string> inputs) {
             return std::make_shared<Formula>(std::move(text), std::move(heads), std::move(inputs));
           }), "text"_a, "heads"_a, "inputs"_a = std::vector<std::string>{})
      .def_prop_ro("text", &Formula::text)
      .def_prop_ro("heads", &Formula::heads)
      .def_prop_ro("inputs", &Formula::inputs)
      .def("evaluate", &evaluate, "heads"_a, "inputs"_a = nb::list(),
           "Rank scores float64 [n] of float32 [n] columns, in declared order.");
}

}  // namespace
}  // namespace lambda_svc

NB_MODULE(_core, module) {
  module.doc() = "Native core of the ranking service.";
  nb::register_exception_translator(lambda_svc::translate, nullptr);
  lambda_svc::bind_arena(module);
  lambda_svc::bind_formula(module);
  lambda_svc::bind_engine(module);
  lambda_svc::bind_pipeline(module);
}
