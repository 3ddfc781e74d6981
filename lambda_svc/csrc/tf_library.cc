#include "lambda_svc/csrc/tf_library.h"

#include <dlfcn.h>

#include <mutex>

#include "lambda_svc/csrc/errors.h"

namespace lambda_svc {
namespace {

void* open_file(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw EngineUnavailable("TensorFlow's library does not open: " + std::string(reason ? reason : path) +
                            "; install tensorflow-cpu into the environment of the service");
  }
  return handle;
}

void* find_symbol(void* cc, void* framework, const char* name, const std::string& cc_path) {
  void* symbol = dlsym(cc, name);
  if (symbol == nullptr) symbol = dlsym(framework, name);
  if (symbol == nullptr) {
    throw EngineUnavailable(cc_path + " lacks the C API function " + name +
                            "; install a tensorflow-cpu of the version that pyproject.toml asks for");
  }
  return symbol;
}

}  // namespace

std::string missing_cpu_features() {
  std::string missing;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const auto need = [&missing](bool there, const char* name) {
    if (there) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  need(__builtin_cpu_supports("sse4.1"), "sse4.1");
  need(__builtin_cpu_supports("sse4.2"), "sse4.2");
  need(__builtin_cpu_supports("avx"), "avx");
#endif
  return missing;
}

TfLibrary::TfLibrary(const std::string& cc_path, const std::string& framework_path) : cc_path_(cc_path) {
  // Asked before the file is opened: its static initialisers already use these instructions.
  const std::string missing = missing_cpu_features();
  if (!missing.empty()) {
    throw EngineUnavailable("TensorFlow needs CPU features that this host lacks: " + missing +
                            "; run the service on a host (or VM CPU model) that has them");
  }
  void* framework = open_file(framework_path);
  void* cc = open_file(cc_path);
#define LAMBDA_SVC_TF_RESOLVE(name, result, arguments) \
  name = reinterpret_cast<tf_type_##name>(find_symbol(cc, framework, #name, cc_path));
  LAMBDA_SVC_TF_FUNCTIONS(LAMBDA_SVC_TF_RESOLVE)
#undef LAMBDA_SVC_TF_RESOLVE
}

std::shared_ptr<const TfLibrary> TfLibrary::open(const std::string& cc_path, const std::string& framework_path) {
  static std::mutex mutex;
  static std::shared_ptr<const TfLibrary> library;
  const std::lock_guard lock(mutex);
  if (library == nullptr) library.reset(new TfLibrary(cc_path, framework_path));
  if (library->cc_path() != cc_path) {
    throw EngineUnavailable("this process already uses " + library->cc_path() + " and cannot open " + cc_path +
                            " beside it; use one TensorFlow per process");
  }
  return library;
}

}  // namespace lambda_svc
