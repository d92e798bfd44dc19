#!/usr/bin/env bash
# Builds two versions for the CPU and compares their results bit by bit: the prepared datasets, and for every recipe
# (those outside recipes/quickstart at toy size), some variants and every golden model that both know, the losses,
# weights, moments, evaluations and samples. Prints one line per comparison and exits with 1 if anything differs.
#
#   tests/same_bits.sh OLD NEW      each a commit, or a folder such as `.` for the working tree
#
# Needs Python 3 but no data. build/same-bits keeps the builds, so that a second comparison is quick.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,8p' "${BASH_SOURCE[0]}" | cut -c 3- >&2; exit 2; }
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$root/build/same-bits
helper=$root/tests/same_bits/same_bits.py
mkdir -p "$work"
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
export GOMP_SPINCOUNT=1000 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

# build COMMIT-OR-FOLDER: prints the path of its program.
build() {
  local source folder commit
  if [ -f "$1/CMakeLists.txt" ]; then
    source=$(realpath "$1")
    folder=$work/$(tr -c 'A-Za-z0-9\n' '-' <<<"$source")
  else
    commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") ||
      { echo "same_bits.sh: $1 is neither a commit nor a folder with a CMakeLists.txt" >&2; return 2; }
    folder=$work/$commit
    source=$folder/source
    if [ ! -d "$source" ]; then
      mkdir -p "$source.new"
      git -C "$root" archive "$commit" | tar x -C "$source.new"
      mv "$source.new" "$source"
    fi
  fi
  mkdir -p "$folder"
  { cmake -S "$source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLONGSTRIDE_TESTS=OFF \
      -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON "${launcher[@]}" &&
    cmake --build "$folder/build" --target longstride -j"$(nproc)"; } >"$folder/build.log" 2>&1 ||
    { tail -n 30 "$folder/build.log" >&2; return 1; }
  echo "$folder/build/longstride"
}

old=$(build "$1")
new=$(build "$2")

runs=$work/runs
rm -rf "$runs"
mkdir -p "$runs"/{raw,old,new}
cd "$runs"
python3 "$helper" inputs raw
failed=0

# quietly COMMAND...: shows the output only if it fails. Without </dev/null, mpirun would read the list of runs.
quietly() { "$@" </dev/null >log 2>&1 || { echo "failed: $*" >&2; cat log >&2; return 1; }; }

for which in old new; do
  quietly "${!which}" prepare bytes --input raw/text.bin --split 0.9,0.05,0.05 --output $which/text.h5
  quietly "${!which}" prepare bytes --input raw/short.bin --split 20000,161,221 --output $which/short.h5
  quietly "${!which}" prepare cifar10 --input raw/cifar --output $which/cifar10.h5
  quietly "${!which}" prepare images --input raw/tiny.npy --size 4 --output $which/tiny.h5
  quietly "${!which}" prepare images --input raw/pictures64.npy --output $which/pictures64.h5
  quietly "${!which}" prepare audio --input raw/sound --rate 12000 --output $which/sound.h5
done
for data in text short cifar10 tiny pictures64 sound; do
  python3 "$helper" datasets "$data" <("$old" info old/$data.h5) <("$new" info new/$data.h5) || failed=1
done

# Both programs train on the old one's datasets.
for which in old new; do
  mkdir $which/runs
  sequence_ranks=parallel.sequence_ranks  # parallel.context in versions before the rename
  "${!which}" plan "$root/recipes/quickstart/text.yaml" --device cpu --set $sequence_ranks=1 >/dev/null 2>&1 ||
    sequence_ranks=parallel.context
  while IFS='|' read -r name ranks threads recipe samples settings; do
    run=$which/runs/$name
    set=()
    for setting in $settings; do set+=(--set "${setting/parallel.sequence_ranks/$sequence_ranks}"); done
    mpi=()
    if [ "$ranks" -gt 1 ]; then mpi=(mpirun -n "$ranks"); fi
    if [ $which = old ] && ! "$old" plan "$root/$recipe" "${set[@]}" --ranks "$ranks" --device cpu >/dev/null 2>&1; then
      echo "not compared: $name, whose recipe the old version refuses"
      continue
    fi
    if [ $which = new ] && [ ! -d "old/runs/$name" ]; then continue; fi
    export OMP_NUM_THREADS=$threads
    quietly "${mpi[@]}" "${!which}" train "$root/$recipe" "${set[@]}" --device cpu --run "$run"
    for split in valid test; do "${!which}" eval "$run" --split $split --windows 8 --json >"$run/$split.json"; done
    # shellcheck disable=SC2086
    quietly "${!which}" sample "$run" $samples --output "$run/samples"
    if [ "$ranks" = 1 ]; then
      quietly "${!which}" export "$root/$recipe" "${set[@]}" --steps 2 --output "$run/export"
    fi
  done < <(python3 "$helper" runs "$root" raw)
done
for run in old/runs/*; do
  python3 "$helper" compare "$run" "new/runs/$(basename "$run")" || failed=1
done
if [ $failed = 0 ]; then echo "same bits: $1 and $2"; else echo "$1 and $2 differ"; fi
exit $failed
