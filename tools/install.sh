#!/bin/bash
# Brings .venv up to date: interpreter and compiler are checked first, then pinned dependencies, then the project itself
# (editable, native cores included). Called by make; each stage is skipped while its stamp is newer than its inputs.
# On failure the reason and the way out go to build/install.error as one line, and the exit status is 0: make prints it.
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build
log=build/install.log
rm -f build/install.error

fail() {
  echo "$1" > build/install.error
  exit 0
}

say() {
  echo "lambda-svc: $1"
}

supported() {  # interpreter -> does it run, and is it 3.11 to 3.13
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' > /dev/null 2>&1
}

complete() {  # interpreter -> can it make environments, and are its headers there
  "$1" -c 'import os, sys, sysconfig, venv, ensurepip
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' > /dev/null 2>&1
}

choose_python() {  # sets `python`
  local candidate partial=""
  if [ -n "${PYTHON:-}" ]; then
    supported "$PYTHON" || fail "PYTHON=$PYTHON is not a working Python 3.11, 3.12 or 3.13: point it at one."
    candidates=("$PYTHON")
  else
    candidates=(.venv/bin/python python3.13 python3.12 python3.11 python3)
  fi
  for candidate in "${candidates[@]}"; do
    supported "$candidate" || continue
    if complete "$candidate"; then
      python=$candidate
      return
    fi
    partial=${partial:-$candidate}
  done
  [ -n "$partial" ] || fail "No Python 3.11, 3.12 or 3.13 found: install one, or set PYTHON=/path/to/python3.11."
  fail "$partial lacks ensurepip or C headers: install python3-venv and python3-dev, or set PYTHON=/path/to/python."
}

choose_compiler() {  # sets and exports CXX: the first compiler that builds a C++20 program
  local candidate found=""
  if [ -n "${CXX:-}" ]; then
    candidates=("$CXX")
  else
    candidates=(c++ g++ clang++ g++-{15,14,13,12,11} clang++-{21,20,19,18,17,16,15,14})
  fi
  for candidate in "${candidates[@]}"; do
    command -v "$candidate" > /dev/null || continue
    found="$found $("$candidate" --version 2>&1 | head -n 1);"
    if compiles "$candidate"; then
      export CXX=$candidate
      return
    fi
  done
  fail "A C++20 compiler is needed (g++ 11, clang++ 14 or newer); found:${found:- none.} Install it or set CXX."
}

compiles() {
  printf '%s\n' '#include <concepts>' '#include <memory>' '#include <span>' \
    '#if defined(__clang__) && __clang_major__ < 14' '#error too old' '#endif' \
    '#if !defined(__clang__) && __GNUC__ < 11' '#error too old' '#endif' \
    'template <std::integral T> T f(std::span<T> s) { return s[0]; }' \
    'int main() { int a[1] = {0}; return f(std::span<int>(a)); }' > build/compiler.cc
  "$1" -std=c++20 build/compiler.cc -o build/compiler.out >> "$log" 2>&1
}

logged() {  # label command...: runs it into the log and shows a line every ten seconds
  local label=$1 pid started=$SECONDS shown=0 seconds
  shift
  echo "+ $*" >> "$log"
  "$@" >> "$log" 2>&1 < /dev/null &
  pid=$!
  while kill -0 "$pid" 2> /dev/null; do
    sleep 0.2
    seconds=$((SECONDS - started))
    if [ $((seconds / 10)) -gt "$shown" ]; then
      shown=$((seconds / 10))
      echo "  $label, ${seconds} s: $(progress)"
    fi
  done
  wait "$pid"
}

progress() {  # the log's last line that tells how far things are
  grep -E '^ *(Collecting|Downloading|Installing collected|Building|\[[0-9]+/[0-9]+\])' "$log" | tail -n 1 | cut -c 1-80
}

pip() {
  .venv/bin/python -m pip --disable-pip-version-check --no-input --retries 3 --timeout 60 "$@"
}

unreachable='ConnectionError|Connection refused|name resolution|Max retries|Connect.*Timeout|versions: none'

pip_failure() {  # says why pip stopped, from its log
  if grep -qE "$unreachable" "$log"; then
    fail "pip reached no package index: connect this machine or set PIP_INDEX_URL, then run make again (log: $log)."
  fi
  if grep -q 'No space left on device' "$log"; then
    fail "The disk is full: .venv needs about 2 GB; free some and run make again (log: $log)."
  fi
  fail "pip failed: $(reason '^ *(ERROR|error)') (log: $log)"
}

reason() {  # pattern: the log's first line that matches, or its last line
  { grep -E "$1" "$log" | grep -v -m 1 'subprocess-exited' || grep -v '^ *$' "$log" | tail -n 1; } |
    tr -d '$' | sed 's/^[ |]*//' | cut -c 1-200
}

stale() {  # stamp inputs...: is the stamp missing or older than an input
  local stamp=$1 input
  shift
  [ -e "$stamp" ] || return 0
  for input in "$@"; do
    [ "$input" -nt "$stamp" ] && return 0
  done
  return 1
}

install_dependencies() {
  stale .venv/dependencies constraints.txt pyproject.toml || return 0
  if ! supported .venv/bin/python || ! .venv/bin/python -m pip --version > /dev/null 2>&1; then
    rm -rf .venv
    "$python" -m venv .venv >> "$log" 2>&1 || fail "$python made no environment: install python3-venv (log: $log)."
  fi
  .venv/bin/python tools/requirements.py pyproject.toml > build/requirements.txt 2>> "$log" ||
    fail "pyproject.toml cannot be read (log: $log)."
  say "installing $(grep -c '==' constraints.txt) pinned packages into .venv (about 500 MB to download)"
  logged packages pip install -c constraints.txt -r build/requirements.txt || pip_failure
  touch .venv/dependencies
}

install_project() {
  say "building the native cores with $CXX"
  logged build pip install -v --no-deps --no-build-isolation --config-settings build-dir=build/editable -e . ||
    fail "The native cores did not build: $(reason '[a-z] ?error:|CMake Error|[A-Za-z]Error:') (log: $log)"
  touch .venv/installed
}

: > "$log"
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
  fail "lambda-svc runs on x86-64 Linux only; this is $(uname -s) $(uname -m)."
choose_python
choose_compiler
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
say "$("$python" --version 2>&1), $("$CXX" --version | head -n 1)"
install_dependencies
install_project
say "ready in ${SECONDS} s"
