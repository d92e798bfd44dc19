#!/usr/bin/env bash
# pip without the library: nothing of an earlier build is installed, and what cannot be built is refused in a sentence.
#
#   pip_off.sh PYTHON SOURCE
set -euo pipefail
python=$1 source=$2
"$python" -c 'import setuptools, wheel, pip' 2>/dev/null ||
  { echo "skipped: this Python lacks pip, setuptools or wheel"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/a trée"
mkdir -p "$tree/kernels"
cp -r "$source/CMakeLists.txt" "$source/launch" "$tree"
cp -r "$source/kernels/c_api" "$tree/kernels/"
rm -f "$tree/launch/python/longstride"/*.so.0
export LONGSTRIDE_ATTENTION=off
fail() { echo "pip_off.sh: $*" >&2; cat "$work/log" >&2; exit 1; }
install() { # install PACKAGE FOLDER
  "$python" -m pip install -q --no-deps --no-build-isolation --no-index --target "$2" "$1" >"$work/log" 2>&1
}

install "$tree/launch/python" "$work/first" || fail "cannot install"
[ -e "$work/first/longstride/library.py" ] || fail "installs no module"
for stale in liblongstride_attention.so.0 gone.py; do
  touch "$(find "$tree/build/python" -path '*/lib*/longstride/library.py' -printf '%h')/$stale"
done
install "$tree/launch/python" "$work/second" || fail "cannot install again"
(cd "$work/first" && find longstride ! -name '*.pyc') | sort >"$work/expected"
(cd "$work/second" && find longstride ! -name '*.pyc') | sort | diff "$work/expected" - ||
  fail "installs what an earlier build left"

code=0
(cd "$tree/launch/python" && "$python" setup.py -q sdist -d "$work/sdist") >"$work/log" 2>&1 || code=$?
[ $code -ne 0 ] && grep -q '^longstride: a source distribution would lack .* pip wheel' "$work/log" ||
  fail "makes a source distribution"
cp -r "$tree/launch/python" "$work/alone"
! install "$work/alone" "$work/third" || fail "installs without the source tree"
grep -q "longstride: .* is not in Longstride's source tree" "$work/log" || fail "does not say what is lacking"
