// The TensorFlow executable over its real library, for the sanitizers' sake: in place, copied, aliased, refused, and
// from many threads on an arena. LAMBDA_SVC_TENSORFLOW_DIR is the folder of libtensorflow_cc.so.2; without it these
// tests say so and do nothing. The Python tests cover the same behaviour without a sanitizer.
#include "lambda_svc/csrc/tf_executable.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

// Null, with the reason printed, where the tests cannot run.
std::shared_ptr<const TfLibrary> library() {
#if defined(__SANITIZE_THREAD__)
  std::printf("  skipped: ThreadSanitizer cannot see TensorFlow's own synchronisation\n");
  return nullptr;
#else
  const char* folder = std::getenv("LAMBDA_SVC_TENSORFLOW_DIR");
  if (folder == nullptr || *folder == '\0') {
    std::printf("  skipped: LAMBDA_SVC_TENSORFLOW_DIR does not name the folder of libtensorflow_cc.so.2\n");
    return nullptr;
  }
  const std::string path(folder);
  return TfLibrary::open(path + "/libtensorflow_cc.so.2", path + "/libtensorflow_framework.so.2");
#endif
}

// As much of the protobuf wire format as a GraphDef of a few nodes needs.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out + static_cast<char>(value);
}
std::string number(int field, std::uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes(int field, const std::string& value) { return varint(field << 3 | 2) + varint(value.size()) + value; }

std::string attribute(const char* name, const std::string& value) { return bytes(5, bytes(1, name) + bytes(2, value)); }
const std::string kFloat = number(6, 1);

std::string node(const char* name, const char* op, const std::vector<std::string>& inputs, const std::string& rest) {
  std::string text = bytes(1, name) + bytes(2, op);
  for (const std::string& input : inputs) text += bytes(3, input);
  return bytes(1, text + rest);
}
std::string placeholder(const char* name, std::int64_t rows) {
  const std::string shape = bytes(2, number(1, static_cast<std::uint64_t>(rows)));
  return node(name, "Placeholder", {}, attribute("dtype", kFloat) + attribute("shape", bytes(7, shape)));
}

// sum = x + u, same = x itself: a feed's own memory as an output.
std::string graph() {
  return placeholder("x", -1) + placeholder("u", 1) + node("sum", "AddV2", {"x", "u"}, attribute("T", kFloat)) +
         node("same", "Identity", {"x"}, attribute("T", kFloat));
}

std::shared_ptr<TfExecutable> load(const std::string& x = "x:0", std::vector<std::string> outputs = {"sum:0", "same"},
                                   DType dtype = DType::kF32, const std::string& graph_def = graph()) {
  const std::vector<TensorSpec> inputs{{x, dtype, {-1}}, {"u:0", DType::kF32, {1}}};
  std::vector<TensorSpec> fetched;
  for (const std::string& name : outputs) fetched.push_back({name, DType::kF32, {-1}});
  const std::string single_threaded = bytes(16, bytes(3, "SINGLE_THREADED_EXECUTOR"));
  const std::string config = number(2, 1) + number(5, 1) + single_threaded;
  const std::string in_caller = number(3, static_cast<std::uint64_t>(-1));
  return std::make_shared<TfExecutable>(library(), graph_def, inputs, fetched, TfOptions{config, in_caller, {}, {}});
}

}  // namespace

TEST(tensorflow_reads_aligned_feeds_in_place_and_counts_copies) {
  if (library() == nullptr) return;
  const auto executable = load();
  alignas(kFeedAlignment) float x[32];
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i);
  alignas(kFeedAlignment) const float u[1] = {0.5f};
  int held = 0, taken = 0;
  struct Counts {
    int *held, *taken;
  } counts{&held, &taken};
  const FeedRelease release{[](void* of) { ++*static_cast<Counts*>(of)->held, ++*static_cast<Counts*>(of)->taken; },
                            [](void* of) { --*static_cast<Counts*>(of)->held; }, &counts};
  for (const std::int64_t shift : {0, 1}) {
    RunStats stats;
    const std::int64_t rows = 7, one = 1;
    const Feed feeds[] = {{x + shift, 28, &rows, 1}, {u, 4, &one, 1}};
    std::vector<float> sum(7), same(7);
    float* outs[] = {sum.data(), same.data()};
    executable->run(feeds, release, outs, 7, &stats);
    for (int i = 0; i < 7; ++i) CHECK(same[i] == x[shift + i] && sum[i] == x[shift + i] + 0.5f);
    CHECK(stats.bytes_copied == (shift == 0 ? 0 : 28));
    CHECK(held == 0 && taken == (shift == 0 ? 2 : 3));
  }
}

TEST(tensorflow_names_what_does_not_fit) {
  if (library() == nullptr) return;
  CHECK_THROWS(EngineError, "does not load", load("x:0", {"sum:0"}, DType::kF32, "no graph"));
  CHECK_THROWS(EngineError, "input z:0: the graph has no such node", load("z:0"));
  CHECK_THROWS(EngineError, "input x:0: the graph has TensorFlow dtype 1", load("x:0", {"sum:0"}, DType::kI64));
  CHECK_THROWS(EngineError, "output x:0: it is also input", load("x:0", {"x:0"}));
  const auto executable = load();
  const std::vector<float> x(4), u(1);
  const std::int64_t rows = 4, one = 1;
  std::vector<float> out(8);
  float* outs[] = {out.data(), out.data() + 4};
  const Feed feeds[] = {{x.data(), 16, &rows, 1}, {u.data(), 4, &one, 1}};
  CHECK_THROWS(EngineError, "output sum:0: got 4 values", executable->run(feeds, {}, outs, 3, nullptr));
  const Feed short_feeds[] = {{x.data(), 12, &rows, 1}, {u.data(), 4, &one, 1}};
  CHECK_THROWS(EngineError, "input x:0: got 12 bytes", executable->run(short_feeds, {}, outs, 4, nullptr));
  const std::int64_t two = 2;
  const Feed unlike[] = {{x.data(), 16, &rows, 1}, {x.data(), 8, &two, 1}};
  CHECK_THROWS(EngineError, "the graph does not run", executable->run(unlike, {}, outs, 4, nullptr));
}

TEST(tensorflow_threads_share_an_arena_that_comes_back_whole) {
  if (library() == nullptr) return;
  const auto arena = Arena::make({.bytes_max = std::size_t{1} << 28, .block_bytes = 4096});
  PlanSpec spec;
  spec.executable = load();
  for (const std::size_t side : {0, 2}) {
    spec.sources[side] = std::make_shared<FakeFeatures>(std::vector<SlotSpec>{{"x", FDType::kF32, Layout::kDense, 1}});
  }
  spec.inputs = {{Side::kItem, InputKind::kValues, 0, -1, paramserver::Pooling::kSum},
                 {Side::kUser, InputKind::kValues, 0, -1, paramserver::Pooling::kSum}};
  spec.formula = std::make_shared<Formula>("sum - same", std::vector<std::string>{"sum", "same"},
                                           std::vector<std::string>{});
  spec.slice_rows = 64;
  const Pipeline pipeline(arena, std::move(spec));
  std::atomic<int> wrong{0};
  const auto work = [&](int seed) {
    std::mt19937 random(seed);
    for (int request = 0; request < 100; ++request) {
      std::vector<std::int64_t> ids(random() % (request % 10 == 0 ? 700 : 70));
      for (auto& id : ids) id = static_cast<std::int64_t>(random() % 1000);
      const RankResult result = pipeline.rank(request_of(seed, ids));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto item = static_cast<float>(ids[result.positions[i]]);
        if (result.heads[ids.size() + i] != item || result.heads[i] != item + static_cast<float>(seed)) ++wrong;
      }
      wrong += result.bytes_copied == 0 && result.positions.size() == ids.size() ? 0 : 1;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(arena->stats().leases == 0 && arena->stats().leased_bytes == 0);
}
