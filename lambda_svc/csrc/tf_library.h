// TensorFlow's C API, opened by path at run time: no link against it, no Python package imported.
//
// Thread-safety: open() may be called from several threads; a TfLibrary is immutable afterwards.
// Ownership: the library is never closed (TensorFlow does not support it); one per process, since op registration
// and thread pools are process-wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lambda_svc {
namespace tf {

// The stable C API's own declarations, as far as we use them (tensorflow/c/c_api.h, tf_tensor.h, tf_status.h).
struct TF_Status;
struct TF_Graph;
struct TF_Operation;
struct TF_Session;
struct TF_DeviceList;
struct TF_SessionOptions;
struct TF_ImportGraphDefOptions;
struct TF_Tensor;
struct TF_Output {
  TF_Operation* oper;
  int index;
};
struct TF_Buffer {
  const void* data;
  std::size_t length;
  void (*data_deallocator)(void* data, std::size_t length);
};
enum TF_DataType : int { TF_FLOAT = 1, TF_INT32 = 3, TF_STRING = 7, TF_INT64 = 9 };
inline constexpr int TF_OK = 0;

}  // namespace tf

// NAME, result, arguments.
#define LAMBDA_SVC_TF_FUNCTIONS(X)                                                                                   \
  X(TF_Version, const char*, ())                                                                                     \
  X(TF_NewStatus, TF_Status*, ())                                                                                    \
  X(TF_DeleteStatus, void, (TF_Status*))                                                                             \
  X(TF_GetCode, int, (const TF_Status*))                                                                             \
  X(TF_Message, const char*, (const TF_Status*))                                                                     \
  X(TF_NewBufferFromString, TF_Buffer*, (const void*, std::size_t))                                                  \
  X(TF_NewBuffer, TF_Buffer*, ())                                                                                    \
  X(TF_DeleteBuffer, void, (TF_Buffer*))                                                                             \
  X(TF_NewGraph, TF_Graph*, ())                                                                                      \
  X(TF_DeleteGraph, void, (TF_Graph*))                                                                               \
  X(TF_NewImportGraphDefOptions, TF_ImportGraphDefOptions*, ())                                                      \
  X(TF_DeleteImportGraphDefOptions, void, (TF_ImportGraphDefOptions*))                                               \
  X(TF_ImportGraphDefOptionsSetPrefix, void, (TF_ImportGraphDefOptions*, const char*))                               \
  X(TF_ImportGraphDefOptionsSetDefaultDevice, void, (TF_ImportGraphDefOptions*, const char*))                        \
  X(TF_GraphImportGraphDef, void, (TF_Graph*, const TF_Buffer*, const TF_ImportGraphDefOptions*, TF_Status*))        \
  X(TF_GraphOperationByName, TF_Operation*, (TF_Graph*, const char*))                                                \
  X(TF_OperationNumOutputs, int, (TF_Operation*))                                                                    \
  X(TF_OperationOutputType, TF_DataType, (TF_Output))                                                                \
  X(TF_GraphGetTensorNumDims, int, (TF_Graph*, TF_Output, TF_Status*))                                               \
  X(TF_GraphGetTensorShape, void, (TF_Graph*, TF_Output, std::int64_t*, int, TF_Status*))                            \
  X(TF_NewSessionOptions, TF_SessionOptions*, ())                                                                    \
  X(TF_DeleteSessionOptions, void, (TF_SessionOptions*))                                                             \
  X(TF_SetConfig, void, (TF_SessionOptions*, const void*, std::size_t, TF_Status*))                                  \
  X(TF_NewSession, TF_Session*, (TF_Graph*, const TF_SessionOptions*, TF_Status*))                                   \
  X(TF_CloseSession, void, (TF_Session*, TF_Status*))                                                                \
  X(TF_DeleteSession, void, (TF_Session*, TF_Status*))                                                               \
  X(TF_SessionListDevices, TF_DeviceList*, (TF_Session*, TF_Status*))                                                \
  X(TF_DeviceListCount, int, (const TF_DeviceList*))                                                                 \
  X(TF_DeviceListName, const char*, (const TF_DeviceList*, int, TF_Status*))                                         \
  X(TF_DeleteDeviceList, void, (TF_DeviceList*))                                                                     \
  X(TF_SessionRun, void,                                                                                             \
    (TF_Session*, const TF_Buffer*, const TF_Output*, TF_Tensor* const*, int, const TF_Output*, TF_Tensor**, int,    \
     const TF_Operation* const*, int, TF_Buffer*, TF_Status*))                                                       \
  X(TF_NewTensor, TF_Tensor*,                                                                                        \
    (TF_DataType, const std::int64_t*, int, void*, std::size_t, void (*)(void*, std::size_t, void*), void*))         \
  X(TF_AllocateTensor, TF_Tensor*, (TF_DataType, const std::int64_t*, int, std::size_t))                             \
  X(TF_DeleteTensor, void, (TF_Tensor*))                                                                             \
  X(TF_TensorData, void*, (const TF_Tensor*))                                                                        \
  X(TF_TensorByteSize, std::size_t, (const TF_Tensor*))                                                              \
  X(TF_TensorType, TF_DataType, (const TF_Tensor*))

class TfLibrary {
 public:
  // Throws EngineUnavailable: missing CPU features, a file that does not open, a missing symbol, or a second,
  // different library in one process.
  static std::shared_ptr<const TfLibrary> open(const std::string& cc_path, const std::string& framework_path);

  const std::string& cc_path() const { return cc_path_; }

#define LAMBDA_SVC_TF_MEMBER(name, result, arguments) tf_type_##name name = nullptr;
#define LAMBDA_SVC_TF_TYPE(name, result, arguments) using tf_type_##name = result(*) arguments;

 private:
  using TF_Status = tf::TF_Status;
  using TF_Graph = tf::TF_Graph;
  using TF_Operation = tf::TF_Operation;
  using TF_Session = tf::TF_Session;
  using TF_DeviceList = tf::TF_DeviceList;
  using TF_SessionOptions = tf::TF_SessionOptions;
  using TF_ImportGraphDefOptions = tf::TF_ImportGraphDefOptions;
  using TF_Tensor = tf::TF_Tensor;
  using TF_Output = tf::TF_Output;
  using TF_Buffer = tf::TF_Buffer;
  using TF_DataType = tf::TF_DataType;

 public:
  LAMBDA_SVC_TF_FUNCTIONS(LAMBDA_SVC_TF_TYPE)
  LAMBDA_SVC_TF_FUNCTIONS(LAMBDA_SVC_TF_MEMBER)
#undef LAMBDA_SVC_TF_MEMBER
#undef LAMBDA_SVC_TF_TYPE

 private:
  TfLibrary(const std::string& cc_path, const std::string& framework_path);
  std::string cc_path_;
};

// The CPU features TensorFlow's wheels are compiled for that this host lacks, "avx, sse4.2"; empty when none.
std::string missing_cpu_features();

}  // namespace lambda_svc
