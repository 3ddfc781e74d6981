// A TensorFlow op for tests, registered through the C kernel API: LambdaSvcProbe(x: float) -> y: float passes its input
// on and records where that input lay. It shows from inside a run which memory the engine read.
//
// TensorFlow's symbols are looked up in the library already opened by the process, so nothing links against it.
// Registration is process-wide; a second call does nothing.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tests/lambda_svc/native/probe_op.h"

namespace {

struct TF_Status;
struct TF_Tensor;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_OpDefinitionBuilder;
struct TF_KernelBuilder;

void* library = nullptr;

template <class Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

TF_Status* new_status() { return symbol<TF_Status* (*)()>("TF_NewStatus")(); }
bool ok(TF_Status* status) {
  const bool fine = symbol<int (*)(const TF_Status*)>("TF_GetCode")(status) == 0;
  symbol<void (*)(TF_Status*)>("TF_DeleteStatus")(status);
  return fine;
}

struct Kernel {
  void (*get_input)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  void (*set_output)(TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*);
  void* (*data)(const TF_Tensor*);
  std::size_t (*bytes)(const TF_Tensor*);
  void (*delete_tensor)(TF_Tensor*);
} kernel;

std::mutex mutex;
std::vector<lambda_probe_record> records;

void compute(void*, TF_OpKernelContext* context) {
  TF_Status* status = new_status();
  TF_Tensor* tensor = nullptr;
  kernel.get_input(context, 0, &tensor, status);
  {
    const std::lock_guard lock(mutex);
    records.push_back({reinterpret_cast<std::uintptr_t>(kernel.data(tensor)), kernel.bytes(tensor)});
  }
  kernel.set_output(context, 0, tensor, status);
  kernel.delete_tensor(tensor);
  ok(status);
}

bool register_op() {
  auto* op = symbol<TF_OpDefinitionBuilder* (*)(const char*)>("TF_NewOpDefinitionBuilder")("LambdaSvcProbe");
  symbol<void (*)(TF_OpDefinitionBuilder*, const char*)>("TF_OpDefinitionBuilderAddInput")(op, "x: float");
  symbol<void (*)(TF_OpDefinitionBuilder*, const char*)>("TF_OpDefinitionBuilderAddOutput")(op, "y: float");
  symbol<void (*)(TF_OpDefinitionBuilder*, bool)>("TF_OpDefinitionBuilderSetIsStateful")(op, true);
  symbol<void (*)(TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*))>(
      "TF_OpDefinitionBuilderSetShapeInferenceFunction")(op, [](TF_ShapeInferenceContext* context, TF_Status* status) {
    symbol<void (*)(TF_ShapeInferenceContext*, TF_Status*)>("TF_ShapeInferenceContextSetUnknownShape")(context, status);
  });
  TF_Status* status = new_status();
  symbol<void (*)(TF_OpDefinitionBuilder*, TF_Status*)>("TF_RegisterOpDefinition")(op, status);
  return ok(status);
}

bool register_kernel() {
  kernel.get_input = symbol<decltype(kernel.get_input)>("TF_GetInput");
  kernel.set_output = symbol<decltype(kernel.set_output)>("TF_SetOutput");
  kernel.data = symbol<decltype(kernel.data)>("TF_TensorData");
  kernel.bytes = symbol<decltype(kernel.bytes)>("TF_TensorByteSize");
  kernel.delete_tensor = symbol<decltype(kernel.delete_tensor)>("TF_DeleteTensor");
  using Create = void* (*)(void*);
  using Compute = void (*)(void*, TF_OpKernelContext*);
  using Delete = void (*)(void*);
  auto* builder = symbol<TF_KernelBuilder* (*)(const char*, const char*, Create, Compute, Delete)>(
      "TF_NewKernelBuilder")("LambdaSvcProbe", "CPU", nullptr, compute, nullptr);
  TF_Status* status = new_status();
  symbol<void (*)(const char*, TF_KernelBuilder*, TF_Status*)>("TF_RegisterKernelBuilder")("LambdaSvcProbe", builder,
                                                                                         status);
  return ok(status);
}

}  // namespace

int lambda_probe_register(const char* framework_path) {
  static std::once_flag once;
  static bool registered = false;
  std::call_once(once, [framework_path] {
    library = dlopen(framework_path, RTLD_NOW | RTLD_LOCAL);
    registered = library != nullptr && register_op() && register_kernel();
  });
  return registered ? 1 : 0;
}

std::size_t lambda_probe_take(lambda_probe_record* out, std::size_t most) {
  const std::lock_guard lock(mutex);
  const std::size_t n = records.size();
  for (std::size_t i = 0; i < n && i < most; ++i) out[i] = records[i];
  records.clear();
  return n;
}
