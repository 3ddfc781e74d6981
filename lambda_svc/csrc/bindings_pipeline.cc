// Bindings of the pipeline, its plan and its result. No logic here.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "lambda_svc/csrc/bindings.h"
#include "lambda_svc/csrc/pipeline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lambda_svc {
namespace {

struct CancelFlag {
  std::atomic<bool> set{false};
};

// A result with the pipeline that names its tables.
struct PyResult : RankResult {
  std::shared_ptr<const Pipeline> pipeline;
};

std::shared_ptr<Pipeline> make_pipeline(std::shared_ptr<Arena> arena, nb::handle executable, nb::handle user,
                                        nb::handle context, nb::handle item,
                                        const std::vector<std::tuple<std::string, nb::object>>& tables,
                                        std::vector<PlanInput> inputs, std::shared_ptr<Formula> formula,
                                        std::size_t slice_rows, bool user_cached, bool item_cached,
                                        nb::handle user_executable, std::vector<PlanInput> user_inputs) {
  PlanSpec spec;
  spec.executable = from_capsule<Executable>(executable, kExecutableCapsule, "executable");
  if (spec.executable == nullptr) throw PlanError("executable", "got none");
  spec.user = from_capsule<Executable>(user_executable, kExecutableCapsule, "user_executable");
  spec.user_inputs = std::move(user_inputs);
  const std::array<nb::handle, kSides> sources{user, context, item};
  for (std::size_t side = 0; side < kSides; ++side) {
    spec.sources[side] = from_capsule<feature_store::FeatureSource>(
        sources[side], feature_store::kFeatureSourceCapsule, kSideNames[side]);
  }
  for (const auto& [name, capsule] : tables) {
    spec.tables.push_back({name, from_capsule<paramserver::RowSource>(capsule, paramserver::kRowSourceCapsule,
                                                                      "tables[" + name + "]")});
  }
  spec.inputs = std::move(inputs);
  spec.formula = std::move(formula);
  spec.slice_rows = slice_rows;
  spec.cached = {user_cached, false, item_cached};
  return std::make_shared<Pipeline>(std::move(arena), std::move(spec));
}

std::vector<RequestColumn> borrow_columns(const nb::list& columns, std::vector<PyBuffer>* held) {
  std::vector<RequestColumn> borrowed;
  borrowed.reserve(columns.size());
  const auto borrow = [held](nb::handle object, const char* formats) {
    return held->emplace_back(object, "columns", formats).get();
  };
  for (const nb::handle entry : columns) {
    const auto column = nb::cast<nb::tuple>(entry);
    const nb::handle side = column[0];
    const bool named = nb::isinstance<nb::str>(side);
    const auto number = named ? static_cast<int>(parse_side(nb::cast<std::string>(side))) : nb::cast<int>(side);
    if (number < 0 || number >= static_cast<int>(kSides)) {
      throw InvalidRequest("columns", "side " + std::to_string(number), "0 user, 1 context or 2 item");
    }
    borrowed.push_back({static_cast<Side>(number), nb::cast<std::uint32_t>(column[1]), borrow(column[2], "f l q L Q"),
                        borrow(column[3], "i"), borrow(column[4], "i")});
  }
  return borrowed;
}

PyResult rank(const std::shared_ptr<Pipeline>& pipeline, std::int64_t user_id, nb::handle candidate_ids,
              const nb::list& columns, const nb::list& formula_inputs, std::size_t top_k, std::int64_t deadline_ns,
              const CancelFlag* cancel, std::int64_t partial_ns, const std::shared_ptr<UserState>& user_state) {
  const PyBuffer ids(candidate_ids, "candidate_ids", "l q L Q");
  std::vector<PyBuffer> held;
  held.reserve(columns.size() * 3 + formula_inputs.size());
  const std::vector<RequestColumn> borrowed = borrow_columns(columns, &held);
  std::vector<Buffer> inputs;
  for (const nb::handle input : formula_inputs) {
    inputs.push_back(held.emplace_back(input, "formula_inputs", "f").get());
  }
  const RankRequest request{.user_id = user_id,
                            .candidate_ids = ids.get(),
                            .columns = borrowed,
                            .formula_inputs = inputs,
                            .top_k = top_k,
                            .deadline_ns = deadline_ns,
                            .partial_ns = partial_ns,
                            .cancelled = cancel == nullptr ? nullptr : &cancel->set,
                            .user_state = user_state.get()};
  const nb::gil_scoped_release release;
  return PyResult{pipeline->rank(request), pipeline};
}

std::pair<std::shared_ptr<UserState>, PyResult> precompute(const std::shared_ptr<Pipeline>& pipeline,
                                                           std::int64_t user_id, const nb::list& columns,
                                                           std::int64_t deadline_ns, const CancelFlag* cancel) {
  std::vector<PyBuffer> held;
  held.reserve(columns.size() * 3);
  const std::vector<RequestColumn> borrowed = borrow_columns(columns, &held);
  RankRequest request;
  request.user_id = user_id;
  request.columns = borrowed;
  request.deadline_ns = deadline_ns;
  request.cancelled = cancel == nullptr ? nullptr : &cancel->set;
  const nb::gil_scoped_release release;
  Precomputed made = pipeline->precompute(request);
  return {std::move(made.state), PyResult{std::move(made.result), pipeline}};
}

// A read-only NumPy view that keeps the result alive.
template <class T>
auto view(const std::vector<T> PyResult::* member) {
  return [member](const PyResult& result) {
    const std::vector<T>& values = result.*member;
    return nb::ndarray<nb::numpy, const T>(values.data(), {values.size()}, nb::find(result));
  };
}

template <class T>
const std::vector<T> PyResult::* of(std::vector<T> RankResult::* member) {
  return static_cast<std::vector<T> PyResult::*>(member);
}

nb::list coverage(const PyResult& result) {
  nb::list lines;
  for (const Coverage& line : coverage_of(result.pipeline->plan(), result)) {
    lines.append(nb::make_tuple(line.source, line.asked, line.answered));
  }
  return lines;
}

nb::list row_statuses(const PyResult& result) {
  nb::list lines;
  const auto& tables = result.pipeline->plan().spec().tables;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& ids = result.tables[i];
    lines.append(nb::make_tuple(tables[i].name, nb::make_tuple(ids[0], ids[1], ids[2], ids[3], ids[4], ids[5])));
  }
  return lines;
}

void bind_result(nb::module_& module) {
  nb::class_<PyResult>(module, "RankResult",
                       "The best k candidates, best first; arrays are read-only views that this object owns.")
      .def_prop_ro("positions", view(of(&RankResult::positions)), "uint32 [k]: where each stood in the request.")
      .def_prop_ro("candidate_ids", view(of(&RankResult::candidate_ids)), "int64 [k].")
      .def_prop_ro("rank_scores", view(of(&RankResult::rank_scores)), "float64 [k]: descending, NaN last.")
      .def_prop_ro("flags", view(of(&RankResult::flags)), "uint8 [k]: bit 1 unknown candidate, bit 2 score is NaN.")
      .def_prop_ro("heads", [](const PyResult& result) {
             const std::size_t k = result.positions.size();
             const std::size_t heads = result.pipeline->plan().heads();
             return nb::ndarray<nb::numpy, const float>(result.heads.data(), {heads, k}, nb::find(result));
           }, "float32 [heads, k].")
      .def_prop_ro("times_us", [](const PyResult& result) {
             const StageMicroseconds& times = result.times;
             return nb::make_tuple(times.gather, times.lookup, times.run, times.topk);
           }, "(gather, lookup, run, topk) in microseconds.")
      .def_prop_ro("coverage", &coverage, "[(source, asked, answered)] of 'user', 'context', 'item', 'table/NAME'.")
      .def_prop_ro("row_statuses", &row_statuses, "[(table, ids by RowStatus)].")
      .def_ro("bytes_copied", &PyResult::bytes_copied, "Bytes of feeds the engine could not use in place.")
      .def_ro("slices", &PyResult::slices, "How often the graph ran.")
      .def_ro("scored", &PyResult::scored, "Candidates [0, scored) of the request were scored.")
      .def_ro("missing", &PyResult::missing, "The candidates after them, which were not.")
      .def_ro("ids_unanswered", &PyResult::ids_unanswered, "Ids that a table could not be asked for, or not in time.")
      .def_ro("user_state_used", &PyResult::user_state_used)
      .def_ro("unknown_user", &PyResult::unknown_user)
      .def_ro("unknown_candidates", &PyResult::unknown_candidates, "Of all candidates, not only the best k.")
      .def_ro("nan_scores", &PyResult::nan_scores, "Of all candidates scored, not only the best k.");
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<CancelFlag>(module, "CancelFlag", "Set from any thread, it ends a rank() at its next check.")
      .def(nb::init<>())
      .def("set", [](CancelFlag& flag) { flag.set.store(true); })
      .def_prop_ro("is_set", [](const CancelFlag& flag) { return flag.set.load(); });
  nb::class_<PlanInput>(module, "PlanInput",
                        "What feeds one input of the graph. side: user | context | item; kind: values | lengths | rows "
                        "| pooled; pooling: sum | mean | sqrtn. Raises PlanError.")
      .def(nb::new_([](const std::string& side, const std::string& kind, std::uint32_t slot_index, int table_index,
                       const std::optional<std::string>& pooling) {
             return PlanInput{parse_side(side), parse_input_kind(kind), slot_index, table_index,
                              parse_pooling(pooling.value_or("mean"))};
           }), "side"_a, "kind"_a, "slot_index"_a, "table_index"_a = -1, "pooling"_a = nb::none());
  bind_result(module);
  nb::class_<UserState>(module, "UserState",
                        "What the user side of a request comes to, by Pipeline.precompute. Immutable.")
      .def_prop_ro("nbytes", &UserState::bytes, "Memory that it takes.")
      .def_prop_ro("epoch", &UserState::epoch, "The epoch that tables were read at.");
  nb::class_<Pipeline>(module, "Pipeline",
                       "Gather, lookup, run and order of a request in one native call without the GIL. Thread-safe.\n\n"
                       "inputs: one PlanInput for each input of the executable, in its order; slice_rows: a multiple "
                       "of 64, 0 for one slice; user_cached, item_cached: whether that side's features are stored, so "
                       "that an id can be unknown; user_executable: run once a request on user_inputs, its outputs "
                       "being the last inputs of `executable`. Raises PlanError naming the input or part that does not "
                       "fit.")
      .def(nb::new_(&make_pipeline), nb::kw_only(), "arena"_a, "executable"_a, "user"_a = nb::none(),
           "context"_a = nb::none(), "item"_a = nb::none(), "tables"_a, "inputs"_a, "formula"_a,
           "slice_rows"_a = 512, "user_cached"_a = true, "item_cached"_a = true, "user_executable"_a = nb::none(),
           "user_inputs"_a = std::vector<PlanInput>())
      .def("rank", &rank, "user_id"_a, "candidate_ids"_a, "columns"_a = nb::list(), "formula_inputs"_a = nb::list(),
           "top_k"_a = 0, "deadline_ns"_a = 0, "cancel"_a = nb::none(), "partial_ns"_a = 0,
           "user_state"_a = nb::none(),
           "Ranks int64 [n] candidates (array or bytes). columns: (side 0 user | 1 context | 2 item, feature index, "
           "values, int32 row offsets or None, int32 byte offsets or None); formula_inputs: float32 [n] each; top_k 0 "
           "means all; deadline_ns on CLOCK_MONOTONIC, 0 none; partial_ns likewise: once a slice is scored, none "
           "begins that would end later, and the answer is of those scored; user_state: taken for the user side if it "
           "is of these graphs and this epoch, else that is computed. Raises InvalidRequest, DeadlineExceeded, "
           "Cancelled, ArenaExhausted, EngineError.")
      .def("precompute", &precompute, nb::kw_only(), "user_id"_a, "columns"_a = nb::list(), "deadline_ns"_a = 0,
           "cancel"_a = nb::none(),
           "The user side alone: (UserState, RankResult without candidates). With ids_unanswered above 0 the state is "
           "of default rows and not one to keep. Raises as rank does.")
      .def("epoch", &Pipeline::epoch, "The epoch that a request beginning now reads its tables at; 0: none.")
      .def_prop_ro("user_reads_context", [](const Pipeline& pipeline) { return pipeline.plan().user_reads_context; },
                   "Whether a user state depends on the context side.");
}

}  // namespace lambda_svc
