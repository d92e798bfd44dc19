#!/usr/bin/env bash
# Installs packages, builds and tests. Ends with ctest's summary and its exit code.
#
#   launch/test.sh           the fast tests: what to run after every change
#   launch/test.sh --all     the slow ones, the sanitizers and the fuzzers too: what to run before a release
#
# CUDA kernels are built where there is a GPU to run them; LONGSTRIDE_CUDA=1 builds them anyway. Files are compiled in
# groups (LONGSTRIDE_UNITY), unless build/test has been configured without.
set -euo pipefail
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

[ $# -le 1 ] || { echo "longstride: test.sh takes one option at most, but was given: $*; see --help" >&2; exit 2; }
select=(-L fast)
targets=(--target longstride fast_tests)
build=build/test
case ${1:-} in
  "") ;;
  --all) select=() targets=() ;;
  --fast) echo "longstride: --fast is the default now; leave it out" >&2; exit 2 ;;
  -h|--help) sed -n '2,8p' "${BASH_SOURCE[0]}" | cut -c 3-; exit 0 ;;
  *) echo "longstride: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

cd "$root"
source launch/scripts/packages.sh
install_packages "${longstride_packages[@]}" libgtest-dev
[ -n "${select[*]-}" ] || install_packages "${longstride_slow_packages[@]}"

cuda=()
! without_gpu || cuda=(-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
unity=ON
! grep -qs '^LONGSTRIDE_UNITY:BOOL=OFF' "$build/CMakeCache.txt" || unity=OFF  # what is compiled stays
configure "$build" -DLONGSTRIDE_TESTS=ON -DLONGSTRIDE_UNITY=$unity ${cuda[@]+"${cuda[@]}"}
grep -A 20 'Longstride' "$build/configure.log" | head -n 8
cmake --build "$build" "${targets[@]}"
# Open MPI requires the last two settings of root. The tests oversubscribe the cores, so threads that wait should sleep.
export GOMP_SPINCOUNT=1000 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ctest --test-dir "$build" -j2 --output-on-failure "${select[@]}"
