// What the native part throws; each arrives in Python as the class of the same name in feature_store/errors.py.
#pragma once

#include <stdexcept>

namespace feature_store {

// A stored table does not match its schema.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory for a cache could not be had.
struct StorageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An instruction set was asked for that is unknown or that this CPU lacks.
struct IsaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Parts were put together in a way that the Python layer must prevent.
struct ProgrammerError : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace feature_store
