#!/bin/bash
# Clones this checkout's HEAD into a temporary folder and times `make demo` and `make test` there, twice the demo, in an
# environment that holds nothing but a PATH to the system's programs and an empty home.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone -q . "$folder/clone"
if [ -d ../shared ]; then ln -s "$(realpath ../shared)" "$folder/shared"; fi
mkdir "$folder/home"
for target in demo demo test; do
  started=$SECONDS
  env -i PATH=/usr/bin:/bin HOME="$folder/home" make -C "$folder/clone" "$target"
  echo "clean-clone: make $target took $((SECONDS - started)) s"
done
