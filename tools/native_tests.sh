#!/bin/bash
# Builds the C++ test binaries in a folder of their own and runs them: native_tests.sh FOLDER [SANITIZERS].
set -eu
cd "$(dirname "$0")/.."
folder=$1
sanitizers=${2:-}
export PATH="$PWD/.venv/bin:$PATH"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
# Where TensorFlow's library lies, found as the service finds it; without one its tests print that they were skipped.
find_tensorflow='from importlib.util import find_spec
spec = find_spec("tensorflow")
print(spec.submodule_search_locations[0] if spec else "")'
LAMBDA_SVC_TENSORFLOW_DIR=${LAMBDA_SVC_TENSORFLOW_DIR:-$(.venv/bin/python -c "$find_tensorflow")}
export LAMBDA_SVC_TENSORFLOW_DIR
mkdir -p "$folder"
log=$folder/build.log
build() {
  cmake -S . -B "$folder" -G Ninja -DLAMBDA_SVC_TESTS=ON -DLAMBDA_SVC_SANITIZE="$sanitizers" \
    -DPython_EXECUTABLE="$PWD/.venv/bin/python" && cmake --build "$folder" --target native_tests -j "$(nproc)"
}
echo "lambda-svc: C++ tests in $folder${sanitizers:+ under $sanitizers}"
if ! build > "$log" 2>&1; then
  grep -E 'error:|CMake Error|FAILED:' "$log" | head -n 20 >&2
  echo "lambda-svc: the C++ tests did not build (log: $log)" >&2
  exit 1
fi
# ThreadSanitizer's shadow memory collides with a highly randomised address space, so that is switched off for it.
fixed_layout=()
if [ "$sanitizers" = thread ]; then fixed_layout=(setarch "$(uname -m)" -R); fi
"${fixed_layout[@]}" ctest --test-dir "$folder" --output-on-failure --timeout 300
