// Runs every test, or those whose name contains the first argument.
#include <cstring>

#include "lambda_svc/csrc/tf_library.h"
#include "tests/lambda_svc/native/check.h"

int main(int argc, char** argv) {
  const char* only = argc > 1 ? argv[1] : "";
  if (std::strcmp(only, "--missing-cpu-features") == 0) {
    std::printf("%s\n", lambda_svc::missing_cpu_features().c_str());
    return 0;
  }
  int ran = 0;
  for (const auto& test : lambda_svc::test::cases()) {
    if (std::strstr(test.name, only) == nullptr) continue;
    std::printf("%s\n", test.name);
    test.body();
    ++ran;
  }
  std::printf("%d tests, %d failures\n", ran, lambda_svc::test::failures());
  return ran > 0 && lambda_svc::test::failures() == 0 ? 0 : 1;
}
