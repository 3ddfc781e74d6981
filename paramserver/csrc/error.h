// Typed faults of the native parameter server. Each names the class of paramserver/errors.py that it arrives as, so
// that the bindings translate all of them with one rule.
#pragma once

#include <stdexcept>
#include <string>

namespace paramserver {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual const char* python_name() const noexcept = 0;
};

// The caller's fault: an option outside its range.
class OptionError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "OptionError"; }
};

// The caller's fault: offsets that do not describe bags of the ids.
class BagError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "BagError"; }
};

// The caller's fault: a row with NaN, infinity, or a number that the table's dtype cannot hold.
class RowValueError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "RowValueError"; }
};

// The caller's fault: an epoch or a sequence that the table cannot take, or no longer holds.
class EpochError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "EpochError"; }
};

// Operating fault: the system gave no memory.
class MemoryExhausted final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "MemoryExhausted"; }
};

// Operating fault: a tier's file cannot be made, opened, read or written.
class SlotFileError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreError"; }
};

// Operating fault: no space left for a tier's spill file. What was asked was not done; reads go on.
class SlotFileFull final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreFull"; }
};

// Operating fault: PARAMSERVER_ISA names an instruction set that this CPU lacks or nobody knows.
class InstructionSetError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "InstructionSetError"; }
};

// Operating fault: a table file that cannot be read or written.
class TableFileError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "TableFileError"; }
};

// Operating fault: a file that is no table file of this package.
class TableSchemaError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "TableSchemaError"; }
};

// Operating fault: an id twice.
class DuplicateIdError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "DuplicateIdError"; }
};

// Operating fault: a file is not what was written.
class StoreDamaged final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreDamaged"; }
};

// Operating fault: no space left on the device.
class StoreFull final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "StoreFull"; }
};

}  // namespace paramserver
