#!/usr/bin/env bash
# Times the step of ten recipes with two builds, in turn on the same GPU, and compares: for changes that must not cost time.
#
#   tests/gpu/scripts/same_steps.sh OLD NEW [--rounds 3] [--steps 30] [--seconds 3] [--most 1.01]
#
# OLD, NEW: the two programs, such as build/cuda/longstride. Prints per recipe the fastest step of every round, the
# ratio of the two medians, and whether memory, planned and used, is the same, and also the loss if both had time for as
# many steps. Exits with 1 when a ratio is above --most, or anything else differs.
set -euo pipefail
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
[ $# -ge 2 ] || { echo "same_steps.sh: needs two programs; see the top of the file" >&2; exit 2; }
old=$1 new=$2 rounds=3 steps=30 seconds=3 most=1.01
shift 2
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --seconds) seconds=$2 ;;
    --most) most=$2 ;;
    *) echo "same_steps.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
for program in "$old" "$new"; do
  [ -x "$program" ] || { echo "same_steps.sh: no program at $program; build it first" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# recipe, sequences per step
cases="table1/enwik8-fixed 8
table1/cifar10-strided 32
table1/imagenet64-strided 8
table4/audio-65k 1
table4/audio-262k 1
table4/audio-1m 1
survey/text-8min-transformer-xl-house 192
survey/text-8min-compressive-house 192
survey/text-8min-adaptive-house 192
survey/text-8min-longformer-house 8"

step() { # program, recipe, sequences
  "$1" bench step "$root/recipes/$2.yaml" --steps "$steps" --seconds "$seconds" --json --set "train.global_batch=$3" \
    --set "train.micro_batch=$3" --set model.recompute=none --set model.dropout=0
}

while read -r recipe sequences; do
  for ((round = 0; round < rounds; ++round)); do
    for which in old new; do
      step "${!which}" "$recipe" "$sequences" >"$work/$which.$round"
    done
  done
  python3 - "$work" "$recipe" "$rounds" "$most" <<'PYTHON' || touch "$work/differs"
import json, pathlib, statistics, sys

work, recipe, rounds, most = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
found = {which: [json.loads((work / f"{which}.{i}").read_text()) for i in range(rounds)] for which in ("old", "new")}
times = {which: [run["fastest"] for run in runs] for which, runs in found.items()}
ratio = statistics.median(times["new"]) / statistics.median(times["old"])
old, new = found["old"][0], found["new"][0]
steps = [run["steps"] for run in (old, new)]
compared = ("planned_bytes", "used_bytes") + (("loss",) if steps[0] == steps[1] else ())
differ = [key for key in compared if old[key] != new[key]]
same = "same bytes and loss"
if "loss" not in compared:
    same = f"same bytes; no loss compared after {steps[0]} and {steps[1]} steps"
shown = {which: ", ".join(f"{t:.2f}" for t in runs) for which, runs in times.items()}
print(f"{recipe}: old {shown['old']} ms, new {shown['new']} ms, ratio {ratio:.4f}",
      f"{', '.join(differ)} differ" if differ else same, sep="; ", flush=True)
sys.exit(ratio > most or bool(differ))
PYTHON
done <<<"$cases"
[ ! -e "$work/differs" ]
