#!/usr/bin/env bash
# longstride_attention by itself, its files compiled in groups: each group compiles. Files by themselves are compiled by
# every build.
#
#   alone.sh SOURCE CXX
set -euo pipefail
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S "$1" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$2" -DLONGSTRIDE_ATTENTION_ONLY=ON -DLONGSTRIDE_UNITY=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON >"$build/log" 2>&1 ||
  { cat "$build/log" >&2; exit 1; }
groups=0
while read -r command; do
  (cd "$build" && bash -c "$command -fsyntax-only")
  groups=$((groups + 1))
done < <(ninja -C "$build" -t commands longstride_attention | grep '/Unity/[^ ]*$')
[ $groups -gt 0 ]
