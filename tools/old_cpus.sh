#!/bin/bash
# Runs the C++ test binaries of the stores on emulated older CPUs: the dispatch must fall back, never end in SIGILL.
# TensorFlow itself needs AVX, so the service's own binary is run on the newest of them only. Then the Python suites of
# both stores run whole on the oldest.
set -euo pipefail
cd "$(dirname "$0")/.."
make native-tests > /dev/null
command -v qemu-x86_64 > /dev/null || { echo "install qemu-user first" >&2; exit 1; }
for cpu in Nehalem-v1 SandyBridge-v1 Haswell; do
  for name in paramserver paramserver_rows feature_store lambda_svc; do
    if [ "$name" = lambda_svc ] && [ "$cpu" != Haswell ]; then continue; fi
    binary=$(find build/tests -name "${name}_test" -type f)
    started=$SECONDS
    qemu-x86_64 -cpu "$cpu" "$binary" quick
    echo "old-cpus: ${name}_test passes on $cpu in $((SECONDS - started)) s"
  done
done
for name in paramserver feature_store; do
  started=$SECONDS
  qemu-x86_64 -cpu Nehalem-v1 .venv/bin/python -m pytest -q -p no:cacheprovider -k "not old_cpu" "tests/$name"
  echo "old-cpus: tests/$name passes on Nehalem-v1 in $((SECONDS - started)) s"
done
