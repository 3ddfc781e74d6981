// What the binding files share: borrowed Python buffers and capsules of other packages' interfaces.
//
// Thread-safety: every function here wants the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/request.h"

namespace lambda_svc {

// A C-contiguous buffer (bytes, NumPy array, memoryview), borrowed for as long as this object lives.
class PyBuffer {
 public:
  // `formats` are the struct-module codes the items may have; raw bytes are taken for any.
  PyBuffer(nanobind::handle object, const std::string& field, const char* formats) {
    if (object.is_none()) return;
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      throw InvalidRequest(field, Py_TYPE(object.ptr())->tp_name, "a C-contiguous buffer such as bytes or an array");
    }
    held_ = true;
    std::string got = view_.format == nullptr ? "B" : view_.format;
    // NumPy marks unaligned items "=f" and little-endian ones "<f"; both are read byte by byte or copied.
    if (got.size() == 2 && (got[0] == '=' || got[0] == '<')) got.erase(0, 1);
    if (got == "B" || std::string(formats).find(got) != std::string::npos) return;
    PyBuffer_Release(&view_);
    throw InvalidRequest(field, "items of format " + got, std::string("one of ") + formats);
  }
  PyBuffer(PyBuffer&& other) noexcept : view_(other.view_), held_(std::exchange(other.held_, false)) {}
  ~PyBuffer() {
    if (held_) PyBuffer_Release(&view_);
  }
  Buffer get() const { return held_ ? Buffer{view_.buf, static_cast<std::size_t>(view_.len)} : Buffer{}; }
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_{};
  bool held_ = false;
};

// The interface in a capsule `std::shared_ptr<const T>*`; None gives null.
template <class T>
std::shared_ptr<const T> from_capsule(nanobind::handle capsule, const char* name, const std::string& field) {
  if (capsule.is_none()) return nullptr;
  void* pointer = PyCapsule_IsValid(capsule.ptr(), name) ? PyCapsule_GetPointer(capsule.ptr(), name) : nullptr;
  if (pointer == nullptr) {
    throw PlanError(field, std::string("got ") + Py_TYPE(capsule.ptr())->tp_name + "; expected a capsule named " +
                               name);
  }
  return *static_cast<const std::shared_ptr<const T>*>(pointer);
}

template <class T>
nanobind::object to_capsule(std::shared_ptr<const T> shared, const char* name) {
  return nanobind::capsule(new std::shared_ptr<const T>(std::move(shared)), name, [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<const T>*>(pointer);
  });
}

void bind_engine(nanobind::module_& module);
void bind_pipeline(nanobind::module_& module);

}  // namespace lambda_svc
