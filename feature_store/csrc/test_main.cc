#include "feature_store/csrc/check.h"

int main() {
  for (const auto& test : feature_store::test::cases()) {
    const int before = feature_store::test::failures();
    test.run();
    std::printf("%s %s\n", feature_store::test::failures() == before ? "ok  " : "FAIL", test.name);
  }
  return feature_store::test::failures() == 0 ? 0 : 1;
}
