// The typed errors of the native core. bindings.cc turns each into the class of the same name in lambda_svc/errors.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace lambda_svc {

// A field of a request that cannot be used.
class InvalidRequest : public std::runtime_error {
 public:
  InvalidRequest(std::string field, std::string got, std::string expected)
      : std::runtime_error(field + ": got " + got + "; expected " + expected),
        field(std::move(field)),
        got(std::move(got)),
        expected(std::move(expected)) {}
  std::string field, got, expected;
};

// Inputs, slots, tables and graph that do not fit together; `field` names the input or part at fault.
class PlanError : public std::runtime_error {
 public:
  PlanError(std::string field, const std::string& message)
      : std::runtime_error(field + ": " + message), field(std::move(field)) {}
  std::string field;
};

// A rank formula that does not parse; `position` is a byte offset in its text.
class FormulaError : public std::runtime_error {
 public:
  FormulaError(std::size_t position, const std::string& message) : std::runtime_error(message), position(position) {}
  std::size_t position;
};

class ArenaExhausted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What nobody waits for any more; `run_us` is how long the graph had run for it.
class DeadlineExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  std::uint32_t run_us = 0;
};

class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  std::uint32_t run_us = 0;
};

// The engine refused to load or to run a graph.
class EngineError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The engine's library cannot be used on this host.
class EngineUnavailable : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lambda_svc
