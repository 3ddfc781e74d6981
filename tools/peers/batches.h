// What the runners in C++ share of the protocol of protocol.py: ids come as batches of row numbers in a file, a line of
// standard input names the next batch, and its answer is a line that says what it took.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

// Row r has the id r * kOdd.
inline constexpr std::int64_t kOdd = 0x1E3779B97F4A7C15;

inline double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Says that it is ready, and answers until standard input ends. lookup(ids) writes the rows of a batch into out[batch,
// width] and returns whether it could; 1 when it could not.
template <class Element, class Allocator, class Lookup>
int answer_batches(const char* file, std::size_t batch, const std::vector<Element, Allocator>& out, const char* note,
                   long bytes, long huge_bytes, Lookup lookup) {
  std::ifstream batches(file, std::ios::binary | std::ios::ate);
  const auto turns = static_cast<std::size_t>(batches.tellg()) / (8 * batch);
  const std::size_t width = out.size() / batch;
  std::vector<std::int64_t> ids(batch);
  std::printf("{\"ready\": true, \"note\": \"%s\", \"bytes\": %ld, \"huge_bytes\": %ld}\n", note, bytes, huge_bytes);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    batches.seekg(static_cast<std::streamoff>(std::stoull(line) % turns * batch * 8));
    batches.read(reinterpret_cast<char*>(ids.data()), static_cast<std::streamsize>(batch * 8));
    for (auto& id : ids) id *= kOdd;
    const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
    if (!lookup(ids)) return 1;
    const double cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, wall_s = seconds(CLOCK_MONOTONIC) - wall;
    double sum = 0;
    for (std::size_t i = 0; i < batch; ++i) sum += out[(i + 1) * width - 1];
    std::printf("{\"cpu_s\": %.9f, \"wall_s\": %.9f, \"sum\": %.1f}\n", cpu_s, wall_s, sum);
    std::fflush(stdout);
  }
  return 0;
}
