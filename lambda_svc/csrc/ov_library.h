// OpenVINO's C API, opened by path at run time: no link against it, no Python package imported.
//
// Thread-safety: open() may be called from several threads; an OvLibrary and its core may be used by several.
// Ownership: library and core live until the process ends, since OpenVINO's thread pools are process-wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lambda_svc {
namespace ov {

// The C API's own declarations, as far as we use them (openvino/c/*.h of 2026.4).
struct ov_core_t;
struct ov_model_t;
struct ov_compiled_model_t;
struct ov_infer_request_t;
struct ov_tensor_t;
struct ov_output_const_port_t;
struct ov_version_t {
  const char* buildNumber;
  const char* description;
};
struct ov_property_t {
  const char* key;
  const void* value;
};
struct ov_shape_t {
  std::int64_t rank;
  std::int64_t* dims;
};
struct ov_dimension_t {  // a dynamic one is {-1, -1}
  std::int64_t min, max;
};
struct ov_partial_shape_t {
  ov_dimension_t rank;
  ov_dimension_t* dims;
};
enum ov_status_e : int { OK = 0 };
enum ov_element_type_e : unsigned { F32 = 4, I32 = 9, I64 = 10 };

}  // namespace ov

// NAME, result, arguments.
#define LAMBDA_SVC_OV_FUNCTIONS(X)                                                                                   \
  X(ov_get_openvino_version, ov_status_e, (ov_version_t*))                                                           \
  X(ov_version_free, void, (ov_version_t*))                                                                          \
  X(ov_get_error_info, const char*, (ov_status_e))                                                                   \
  X(ov_get_last_err_msg, const char*, ())                                                                            \
  X(ov_free, void, (const char*))                                                                                    \
  X(ov_core_create, ov_status_e, (ov_core_t**))                                                                      \
  X(ov_core_read_model, ov_status_e, (const ov_core_t*, const char*, const char*, ov_model_t**))                     \
  X(ov_core_compile_model_props, ov_status_e,                                                                        \
    (const ov_core_t*, const ov_model_t*, const char*, std::size_t, const ov_property_t*, ov_compiled_model_t**))    \
  X(ov_model_free, void, (ov_model_t*))                                                                              \
  X(ov_model_inputs_size, ov_status_e, (const ov_model_t*, std::size_t*))                                            \
  X(ov_model_const_input_by_index, ov_status_e, (const ov_model_t*, std::size_t, ov_output_const_port_t**))          \
  X(ov_model_const_input_by_name, ov_status_e, (const ov_model_t*, const char*, ov_output_const_port_t**))           \
  X(ov_model_reshape, ov_status_e,                                                                                   \
    (const ov_model_t*, const char**, const ov_partial_shape_t*, std::size_t))                                       \
  X(ov_port_get_any_name, ov_status_e, (const ov_output_const_port_t*, char**))                                      \
  X(ov_port_get_element_type, ov_status_e, (const ov_output_const_port_t*, ov_element_type_e*))                      \
  X(ov_port_get_partial_shape, ov_status_e, (const ov_output_const_port_t*, ov_partial_shape_t*))                    \
  X(ov_partial_shape_free, void, (ov_partial_shape_t*))                                                              \
  X(ov_output_const_port_free, void, (ov_output_const_port_t*))                                                      \
  X(ov_compiled_model_input_by_name, ov_status_e,                                                                    \
    (const ov_compiled_model_t*, const char*, ov_output_const_port_t**))                                             \
  X(ov_compiled_model_output_by_name, ov_status_e,                                                                   \
    (const ov_compiled_model_t*, const char*, ov_output_const_port_t**))                                             \
  X(ov_compiled_model_get_property, ov_status_e, (const ov_compiled_model_t*, const char*, char**))                  \
  X(ov_compiled_model_create_infer_request, ov_status_e, (const ov_compiled_model_t*, ov_infer_request_t**))         \
  X(ov_compiled_model_free, void, (ov_compiled_model_t*))                                                            \
  X(ov_infer_request_set_tensor_by_const_port, ov_status_e,                                                          \
    (ov_infer_request_t*, const ov_output_const_port_t*, const ov_tensor_t*))                                        \
  X(ov_infer_request_get_tensor_by_const_port, ov_status_e,                                                          \
    (const ov_infer_request_t*, const ov_output_const_port_t*, ov_tensor_t**))                                       \
  X(ov_infer_request_infer, ov_status_e, (ov_infer_request_t*))                                                      \
  X(ov_infer_request_free, void, (ov_infer_request_t*))                                                              \
  X(ov_tensor_create_from_host_ptr, ov_status_e, (ov_element_type_e, ov_shape_t, void*, ov_tensor_t**))              \
  X(ov_tensor_data, ov_status_e, (const ov_tensor_t*, void**))                                                       \
  X(ov_tensor_get_size, ov_status_e, (const ov_tensor_t*, std::size_t*))                                             \
  X(ov_tensor_free, void, (ov_tensor_t*))

class OvLibrary {
 public:
  // Throws EngineUnavailable: a file that does not open, a missing symbol, or a second, different library in one
  // process.
  static std::shared_ptr<const OvLibrary> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }  // "2026.4.1-22133-aae87300c38-releases/2026/4"
  const ov::ov_core_t* core() const { return core_; }

  // Throws EngineError "DOING: OpenVINO's own message" unless `status` is OK.
  void check(ov::ov_status_e status, const std::string& doing) const;

#define LAMBDA_SVC_OV_MEMBER(name, result, arguments) ov_type_##name name = nullptr;
#define LAMBDA_SVC_OV_TYPE(name, result, arguments) using ov_type_##name = result(*) arguments;

 private:
  using ov_core_t = ov::ov_core_t;
  using ov_model_t = ov::ov_model_t;
  using ov_compiled_model_t = ov::ov_compiled_model_t;
  using ov_infer_request_t = ov::ov_infer_request_t;
  using ov_tensor_t = ov::ov_tensor_t;
  using ov_output_const_port_t = ov::ov_output_const_port_t;
  using ov_version_t = ov::ov_version_t;
  using ov_property_t = ov::ov_property_t;
  using ov_shape_t = ov::ov_shape_t;
  using ov_partial_shape_t = ov::ov_partial_shape_t;
  using ov_status_e = ov::ov_status_e;
  using ov_element_type_e = ov::ov_element_type_e;

 public:
  LAMBDA_SVC_OV_FUNCTIONS(LAMBDA_SVC_OV_TYPE)
  LAMBDA_SVC_OV_FUNCTIONS(LAMBDA_SVC_OV_MEMBER)
#undef LAMBDA_SVC_OV_MEMBER
#undef LAMBDA_SVC_OV_TYPE

 private:
  explicit OvLibrary(const std::string& path);
  std::string path_;
  std::string version_;
  ov_core_t* core_ = nullptr;
};

}  // namespace lambda_svc
