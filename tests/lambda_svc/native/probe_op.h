// The C interface of the test library that conftest.py opens with ctypes.
#pragma once

#include <cstddef>
#include <cstdint>

#define LAMBDA_TEST_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
struct lambda_probe_record {
  std::uint64_t address;
  std::uint64_t bytes;
};
}

// 1 when the op is registered, now or before.
LAMBDA_TEST_EXPORT int lambda_probe_register(const char* framework_path);
// Moves the records of every run since the last call to `out`; returns how many there were.
LAMBDA_TEST_EXPORT std::size_t lambda_probe_take(lambda_probe_record* out, std::size_t most);

// Pointers to put in capsules "feature_store.FeatureSource.1" and "paramserver.RowSource.3"; live until exit.
// A slot is `dtype layout width`, slots are separated by ';', as in "2 2 5;1 0 1".
LAMBDA_TEST_EXPORT void* lambda_fake_features(const char* slots);
LAMBDA_TEST_EXPORT void* lambda_fake_table(std::uint32_t dim);
