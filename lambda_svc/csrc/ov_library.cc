#include "lambda_svc/csrc/ov_library.h"

#include <dlfcn.h>

#include <mutex>

#include "lambda_svc/csrc/errors.h"

namespace lambda_svc {
namespace {

void* open_file(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw EngineUnavailable("OpenVINO's library does not open: " + std::string(reason ? reason : path) +
                            "; install openvino into the environment of the service");
  }
  return handle;
}

void* find_symbol(void* handle, const char* name, const std::string& path) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) {
    throw EngineUnavailable(path + " lacks the C API function " + name +
                            "; install an openvino of the version that pyproject.toml asks for");
  }
  return symbol;
}

}  // namespace

OvLibrary::OvLibrary(const std::string& path) : path_(path) {
  void* handle = open_file(path);
#define LAMBDA_SVC_OV_RESOLVE(name, result, arguments) \
  name = reinterpret_cast<ov_type_##name>(find_symbol(handle, #name, path));
  LAMBDA_SVC_OV_FUNCTIONS(LAMBDA_SVC_OV_RESOLVE)
#undef LAMBDA_SVC_OV_RESOLVE
  ov_version_t version{};
  check(ov_get_openvino_version(&version), "OpenVINO does not tell its version");
  version_ = version.buildNumber;
  ov_version_free(&version);
  check(ov_core_create(&core_), "OpenVINO does not start");
}

std::shared_ptr<const OvLibrary> OvLibrary::open(const std::string& path) {
  static std::mutex mutex;
  // Leaked on purpose: OpenVINO's threads may outlive our static objects.
  static auto* library = new std::shared_ptr<const OvLibrary>;
  const std::lock_guard lock(mutex);
  if (*library == nullptr) library->reset(new OvLibrary(path));
  if ((*library)->path() != path) {
    throw EngineUnavailable("this process already uses " + (*library)->path() + " and cannot open " + path +
                            " beside it; use one OpenVINO per process");
  }
  return *library;
}

void OvLibrary::check(ov::ov_status_e status, const std::string& doing) const {
  if (status == ov::OK) return;
  // The last message is kept per process, not per thread: of two failures at once, one may be told with the other's.
  const char* last = ov_get_last_err_msg();
  std::string message = last != nullptr && *last != '\0' ? last : ov_get_error_info(status);
  if (last != nullptr) ov_free(last);
  while (!message.empty() && message.back() == '\n') message.pop_back();
  throw EngineError(doing + ": " + message);
}

}  // namespace lambda_svc
