#!/usr/bin/env bash
# All checks of longstride.attention on a GPU: builds the library, runs the tests of the operators and of loaded models
# there, measures what the operators add on the host, and times them next to the peers that are installed.
#
#   tests/gpu/scripts/pytorch.sh BUILD OUTPUT [--python python3] [--jobs N]
#
# BUILD: a build folder, such as build/cuda, or a new one, in which only the library is then built. OUTPUT, new or
# empty, gets a log of each check. Prints what each found; exits with 1 if anything failed or was skipped.
set -uo pipefail
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
[ $# -ge 2 ] || { echo "pytorch.sh: needs a build folder and an output folder; see the top of the file" >&2; exit 2; }
[ -z "$(ls -A "$2" 2>/dev/null)" ] || { echo "pytorch.sh: $2 is not empty; give a new folder" >&2; exit 2; }
mkdir -p "$1" "$2"
build=$(CDPATH= cd -- "$1" && pwd) output=$(CDPATH= cd -- "$2" && pwd) python=python3 jobs=$(nproc)
shift 2
while [ $# -gt 0 ]; do
  case "$1" in
    --python) python=$2 ;;
    --jobs) jobs=$2 ;;
    *) echo "pytorch.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done

build_library() {
  if [ ! -e "$build/CMakeCache.txt" ]; then
    cmake -S "$root" -B "$build" -DLONGSTRIDE_ATTENTION_ONLY=ON || return
  fi
  cmake --build "$build" --target longstride_attention -j "$jobs"
}
on_gpu() {
  LONGSTRIDE_TEST_DEVICE=cuda "$python" "$root/tests/pytorch/$1_test.py" -v
}

export PYTHONPATH=$root/launch/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export LONGSTRIDE_ATTENTION_LIBRARY=$build/liblongstride_attention.so.0
failed=0
check() {
  local name=$1
  shift
  local begin=$SECONDS
  "$@" >"$output/$name.log" 2>&1
  local code=$?
  [ $code -eq 0 ] || failed=1
  local said=passed
  [ $code -eq 0 ] || said="FAILED, exit code $code"
  printf '%-10s %s (%d s)\n' "$name" "$said" $((SECONDS - begin))
  [ $code -eq 0 ] || tail -n 25 "$output/$name.log"
}
check build build_library
[ $failed -eq 0 ] || exit 1
check attention on_gpu attention
check bounds on_gpu bounds
check compile on_gpu compile
check distance on_gpu distance
check scan on_gpu scan
check models env LONGSTRIDE_TEST_DEVICE=cuda "$python" "$root/tests/python/kernels_test.py" -v
check compiled env LONGSTRIDE_TEST_DEVICE=cuda "$python" "$root/tests/python/compiled_test.py" -v
check speed "$python" "$root/tests/peers/run.py" op
cat "$output/speed.log"
exit $failed
