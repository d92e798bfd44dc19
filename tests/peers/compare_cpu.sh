#!/usr/bin/env bash
# Training throughput of longstride and of the same model in PyTorch: same recipe, same cores, one run.
# Prints the ratio.
#   tests/peers/compare_cpu.sh [--data FILE] [--threads 2] [--steps 9] [--command build/cpu/longstride]
#                                       [--python python3] [--forms LIST] [--compile both] [RECIPE ...]
#
# Ours is measured before and after the peer, to reveal a machine whose speed changes: trust the ratio of medians only
# if the two agree. The ratio of processor seconds is valid on a busy machine too, but only with --threads 1, because
# threads that wait for each other use processor time.
# --forms, --compile: fewer forms of the peer (train_cpu_torch.py), if only some are worth the time.
# --python: an interpreter with torch and PyYAML. --data: any file of bytes (default: the text of this repository).
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
data="" threads=2 command="$root/build/cpu/longstride" python=python3 steps=9 peer=()
recipes=()
while [ $# -gt 0 ]; do
  case "$1" in
    --data) data=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --command) command=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --forms | --compile) peer+=("$1" "$2"); shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    -*) echo "compare_cpu.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
    *) recipes+=("$1"); shift ;;
  esac
done
[ ${#recipes[@]} -gt 0 ] || recipes=("$here"/recipes/*.yaml)
[ -x "$command" ] || { echo "compare_cpu.sh: no program at $command; build it or give --command" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$data" ]; then
  data="$work/text"
  git -C "$root" ls-files -z | (cd "$root" && xargs -0 cat) >"$data"
fi
export OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads
"$command" prepare bytes --input "$data" --output "$work/data.h5" >/dev/null

ours() { "$python" "$here/time_longstride.py" "$command" "$1" "$work/data.h5" "$work" --steps "$steps"; }

for recipe in "${recipes[@]}"; do
  before=$(ours "$recipe")
  "$python" "$here/train_cpu_torch.py" "$recipe" --threads "$threads" --steps "$steps" "${peer[@]}" | tee "$work/peer"
  after=$(ours "$recipe")
  "$python" "$here/compare_cpu.py" "$recipe" "$before" "$after" "$work/peer"
done
