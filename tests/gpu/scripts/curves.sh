#!/usr/bin/env bash
# Compares the first training steps of one model on one text, in fp32 on the CPU and in fp32, bf16 and fp16 on the GPU,
# step by step, from their metrics.jsonl.
#
#   curves.sh LONGSTRIDE DATA.h5 OUT [STEPS]        LONGSTRIDE: build/cuda/longstride; STEPS: 200
#
# Rounding errors grow from step to step in any training, and without bound where the loss jumps, so the learning rate
# is one at which the loss falls smoothly. The CPU also runs with its batch in two halves, the same sums in another
# order, to show the effect of a few roundings alone. Fails if the loss at any step differs by more than a relative 1e-5
# in fp32, or by more than 1% in bf16 and fp16. Runs already in OUT are kept, so the two CPU runs can be made elsewhere
# (CPU_ONLY=1).
set -euo pipefail
[ $# -ge 3 ] || { echo "curves.sh: needs a program, a dataset and an output folder; see the top of the file" >&2; exit 2; }
longstride=$1 data=$2 out=$3 steps=${4:-200}
recipe=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)/recipes/quickstart/enwik8-4m.yaml

train() {  # name, device, more settings
  local name=$1 device=$2
  shift 2
  [ -f "$out/$name/metrics.jsonl" ] && return
  local settings=(data.path="$data" data.context=512 train.global_batch=2 train.steps="$steps" train.lr=5e-4
    train.warmup=100 train.log_every=1 train.checkpoint_every=0 train.evaluate_windows=1 "$@") options=() s
  for s in "${settings[@]}"; do options+=(--set "$s"); done
  "$longstride" train "$recipe" --device "$device" --run "$out/$name" "${options[@]}" >"$out/$name.log" 2>&1 ||
    { tail -5 "$out/$name.log" >&2; exit 1; }
}
losses() { grep -v '"split"\|"device"' "$out/$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/'; }

mkdir -p "$out"
train cpu cpu train.precision=fp32
train cpu-halves cpu train.precision=fp32 train.micro_batch=1
[ "${CPU_ONLY:-0}" = 1 ] && exit
train gpu-fp32 gpu train.precision=fp32
train gpu-bf16 gpu train.precision=bf16
train gpu-fp16 gpu train.precision=fp16

paste <(losses cpu) <(losses cpu-halves) <(losses gpu-fp32) <(losses gpu-bf16) <(losses gpu-fp16) | awk -v steps="$steps" '
  BEGIN {
    split("CPU in halves,GPU fp32,GPU bf16,GPU fp16", names, ",")
    print "| step | CPU fp32, nats | CPU in halves | GPU fp32 | GPU bf16 | GPU fp16 |\n|---|---|---|---|---|---|"
  }
  {
    for (i = 1; i <= 4; ++i) {
      d = ($(i + 1) - $1) / $1
      if (d < 0) d = -d
      squares[i] += d * d
      if (d > most[i]) most[i] = d
      at[i] = d
    }
    if (NR <= 2 || NR == 5 || NR == 10 || NR == 20 || NR % 50 == 0)
      printf "| %d | %.6f | %.1e | %.1e | %.1e | %.1e |\n", NR, $1, at[1], at[2], at[3], at[4]
  }
  END {
    printf "| largest | |"; for (i = 1; i <= 4; ++i) printf " %.1e |", most[i]
    printf "\n| rms | |"; for (i = 1; i <= 4; ++i) printf " %.1e |", sqrt(squares[i] / NR)
    print ""
    if (NR != steps) { print "only " NR " steps of " steps; exit 1 }
    if (most[2] > 1e-5 || most[3] > 0.01 || most[4] > 0.01) { print "too far from the CPU"; exit 1 }
  }'
