#!/bin/bash
# Installs the peers that benchmarks compare with, each in an environment of its own under build/peers/ (or $PEERS):
#   tools/peers/install.sh [fbgemm] [tfra] [tf_lookup] [maps] [redis]      no name: all
# Resumable: what is installed is left alone. A peer that cannot be had leaves the reason, one line, in NAME.missing
# there, which the benchmarks show; it stops no other, and the exit status stays 0. Nothing needs root.
set -u
cd "$(dirname "$0")/../.." || exit 1
checkout=$PWD
folder=${PEERS:-build/peers}
mkdir -p "$folder" || exit 1
folder=$(cd "$folder" && pwd)
python=${PYTHON:-python3}
log=$folder/install.log

missing() {  # peer reason: remembered for the benchmarks
  echo "$2" > "$folder/$1.missing"
  echo "  $1: missing: $2 (log: $log)"
}

logged() {
  echo "+ $*" >> "$log"
  "$@" >> "$log" 2>&1 < /dev/null
}

environment() {  # peer package...: a virtual environment with exactly these
  local peer=$1
  shift
  logged "$python" -m venv "$folder/$peer" || return 1
  logged "$folder/$peer/bin/python" -m pip --disable-pip-version-check --no-input install "$@"
}

debian() {  # package...: downloaded by apt and unpacked under $folder/debian, not installed
  local package
  mkdir -p "$folder/debian/packages" || return 1
  for package in "$@"; do
    compgen -G "$folder/debian/packages/${package}_*.deb" > /dev/null && continue
    (cd "$folder/debian/packages" && logged apt-get -o APT::Sandbox::User=root download "$package") || return 1
    logged dpkg-deb -x "$folder"/debian/packages/"${package}"_*.deb "$folder/debian" || return 1
  done
}

compiled() {  # output source flags...
  local output=$1 source=$2
  shift 2
  logged "${CXX:-c++}" -std=c++20 -O3 -DNDEBUG -march=native -I"$checkout" -o "$output" "$source" "$@"
}

install_fbgemm() {
  environment fbgemm --no-deps fbgemm-gpu-cpu==1.8.0 torch==2.13.0+cpu numpy typing_extensions filelock sympy mpmath \
    networkx jinja2 markupsafe fsspec ||
    missing fbgemm "pip found no fbgemm-gpu-cpu 1.8.0 with torch 2.13.0+cpu"
}

install_tfra() {
  # tensorflow, not tensorflow-cpu: the add-on's library wants symbols that only the former has.
  environment tfra tensorflow==2.16.2 || { missing tfra "pip found no tensorflow 2.16.2"; return; }
  logged "$folder/tfra/bin/python" -m pip --disable-pip-version-check install --no-deps \
    tensorflow-recommenders-addons==0.8.1 typeguard==2.13.3 ||
    missing tfra "pip found no tensorflow-recommenders-addons 0.8.1"
}

install_tf_lookup() {
  mkdir -p "$folder/tf_lookup"
  logged "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)' ||
    missing tf_lookup "$python has no tensorflow"
  readlink -f "$(command -v "$python")" > /dev/null && command -v "$python" > "$folder/tf_lookup/python"
}

install_maps() {
  environment maps --no-deps boost-headers==1.85.0.post1 ||
    { missing maps "pip found no boost-headers 1.85.0.post1"; return; }
  debian libabsl-dev || { missing maps "apt found no libabsl-dev to download"; return; }
  local boost archives
  boost=$(find "$folder/maps" -type d -path '*boost*' -name unordered -printf '%h\n' -quit)
  archives=$(find "$folder/debian/usr/lib" -name 'libabsl_*.a' | sort)
  # Debian's archives know no order of their own.
  compiled "$folder/maps/runner" tools/peers/maps.cc -I"$(dirname "$boost")" -I"$folder/debian/usr/include" \
    -Wl,--start-group $archives -Wl,--end-group -pthread ||
    missing maps "maps.cc did not compile against Boost 1.85 and Debian's Abseil"
}

install_redis() {
  debian redis-server redis-tools libhiredis0.14 libhiredis-dev libjemalloc2 liblua5.1-0 liblzf1 lua-cjson lua-bitop ||
    { missing redis "apt found no redis-server and libhiredis-dev to download"; return; }
  local libraries=$folder/debian/usr/lib/x86_64-linux-gnu
  mkdir -p "$folder/redis"
  compiled "$folder/redis/runner" tools/peers/redis_mget.cc -I"$folder/debian/usr/include" \
    "$libraries/libhiredis.so.0.14" -Wl,-rpath,"$libraries" ||
    { missing redis "redis_mget.cc did not compile against hiredis"; return; }
  logged env LD_LIBRARY_PATH="$libraries" "$folder/debian/usr/bin/redis-server" --version ||
    missing redis "the unpacked redis-server does not start"
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=(maps redis tf_lookup fbgemm tfra)
for name in "${names[@]}"; do
  declare -F "install_$name" > /dev/null || { echo "no peer $name: fbgemm, tfra, tf_lookup, maps, redis"; exit 2; }
  [ -e "$folder/$name.installed" ] && [ ! "tools/peers/$name.cc" -nt "$folder/$name.installed" ] && continue
  echo "installing $name"
  rm -f "$folder/$name.missing"
  "install_$name"
  [ -e "$folder/$name.missing" ] || touch "$folder/$name.installed"
done
exit 0
