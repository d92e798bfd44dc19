#!/usr/bin/env bash
# pip builds and installs the package with its library, and it works by itself. The library alone, which it builds for
# that, can be installed for find_package as well.
#
#   pip.sh PYTHON SOURCE
set -euo pipefail
python=$1 source=$2
"$python" -c 'import setuptools, wheel, pip, torch; torch.library.custom_op' 2>/dev/null ||
  { echo "skipped: this Python lacks pip, setuptools, wheel or PyTorch 2.4"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy, because the build writes to build/ of its source tree.
mkdir "$work/source"
cp -r "$source"/{CMakeLists.txt,cmake,kernels,launch} "$work/source"
"$python" -m pip install -q --no-deps --no-build-isolation --no-index --target "$work/installed" \
  "$work/source/launch/python" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --install "$work/source/build/python/attention" --prefix "$work/prefix" >"$work/log"
rm -rf "$work/source"
cd "$work"
{ cmake -S "$source/tests/packages/consumer" -B consumer -DCMAKE_PREFIX_PATH="$work/prefix" &&
  cmake --build consumer && ctest --test-dir consumer --no-tests=error; } >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
env -u LONGSTRIDE_ATTENTION_LIBRARY PYTHONPATH="$work/installed" "$python" -c '
import torch, longstride
from longstride import library
v = torch.ones(1, 2, 50, 16)
o = longstride.attention(torch.randn(v.shape), torch.randn(v.shape), v, longstride.Pattern(parts=["local"], window=7))
torch.testing.assert_close(o, v)
assert library._library._name.startswith("'"$work"'/installed"), library._library._name
import importlib.metadata
assert importlib.metadata.version("longstride") == library.version()
print("works")' >"$work/said"
grep -qx works "$work/said"
