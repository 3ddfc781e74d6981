#include "lambda_svc/csrc/plan.h"

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

const std::shared_ptr<const Formula> kOneHead =
    std::make_shared<Formula>("x", std::vector<std::string>{"x"}, std::vector<std::string>{});

template <class Change>
void plan_with(Change change) {
  const Fixture fixture;
  PlanSpec spec = fixture.spec();
  change(spec);
  const Plan plan(std::move(spec));
}

}  // namespace

TEST(plan_names_the_input_that_does_not_fit) {
  using enum InputKind;
  plan_with([](PlanSpec&) {});
  CHECK_THROWS(PlanError, "input history_rows: slot 7 of the user side, which has 1",
               plan_with([](PlanSpec& spec) { spec.inputs[0].slot = 7; }));
  CHECK_THROWS(PlanError, "input history_rows: table 2 of 2",
               plan_with([](PlanSpec& spec) { spec.inputs[0].table = 2; }));
  CHECK_THROWS(PlanError, "input item_row: the graph wants shape [-1,4], slot item_id gives [-1,8]",
               plan_with([](PlanSpec& spec) { spec.tables[0].rows = std::make_shared<FakeTable>(8);
                                              spec.inputs[0].table = 1; }));
  CHECK_THROWS(PlanError, "input genres: slot genres is ragged; expected dense or padded",
               plan_with([](PlanSpec& spec) { spec.inputs[4].kind = kRows; }));
  CHECK_THROWS(PlanError, "input price: slot price is f32; expected i64 ids",
               plan_with([](PlanSpec& spec) { spec.inputs[6].kind = kRows; spec.inputs[6].table = 0; }));
  CHECK_THROWS(PlanError, "input item_id: the graph wants i64, slot item_id gives f32",
               plan_with([](PlanSpec& spec) { spec.inputs[7].kind = kRows; spec.inputs[7].table = 0; }));
  CHECK_THROWS(PlanError, "input hour: reads the context side, which has no slots",
               plan_with([](PlanSpec& spec) { spec.sources[1] = nullptr; }));
  CHECK_THROWS(PlanError, "input history_lengths: slot item_id is dense; expected padded",
               plan_with([](PlanSpec& spec) { spec.inputs[1].side = Side::kItem; }));
}

TEST(plan_checks_its_parts) {
  CHECK_THROWS(PlanError, "inputs: got 7 for a graph with 8",
               plan_with([](PlanSpec& spec) { spec.inputs.pop_back(); }));
  CHECK_THROWS(PlanError, "slice_rows: got 100", plan_with([](PlanSpec& spec) { spec.slice_rows = 100; }));
  CHECK_THROWS(PlanError, "executable: got none", plan_with([](PlanSpec& spec) { spec.executable = nullptr; }));
  CHECK_THROWS(PlanError, "tables[item]: got no rows",
               plan_with([](PlanSpec& spec) { spec.tables[0].rows = nullptr; }));
  CHECK_THROWS(PlanError, "formula: declares 1 heads for a graph with 2",
               plan_with([](PlanSpec& spec) { spec.formula = kOneHead; }));
}

TEST(plan_looks_the_same_rows_up_once) {
  const Fixture fixture;
  PlanSpec spec = fixture.spec();
  const std::size_t before = Plan(spec).lookups.size();
  auto inputs = fixture.executable->inputs();
  inputs.push_back({"item_row_again", DType::kF32, {-1, Fixture::kDim}});
  spec.executable = std::make_shared<FakeExecutable>(inputs, 2);
  spec.inputs.push_back(spec.inputs[3]);
  const Plan plan(spec);
  CHECK(plan.lookups.size() == before);
  CHECK(plan.feeds[8].region == plan.feeds[3].region);
}

TEST(plan_parses_the_manifest_s_words) {
  CHECK(parse_side("context") == Side::kContext);
  CHECK(parse_input_kind("pooled") == InputKind::kPooled);
  CHECK(parse_pooling("sqrtn") == paramserver::Pooling::kSqrtN);
  CHECK_THROWS(PlanError, "side: got users", parse_side("users"));
  CHECK_THROWS(PlanError, "kind: got row", parse_input_kind("row"));
  CHECK_THROWS(PlanError, "pooling: got avg", parse_pooling("avg"));
}
