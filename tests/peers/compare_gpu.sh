#!/usr/bin/env bash
# Training throughput of longstride and of the same models in PyTorch, on the same GPU, one after the other: every
# recipe, with everything stored and with recompute. Prints a table with the ratios, and where our time goes.
#   tests/peers/compare_gpu.sh [--peer model_torch.py] [--command build/cuda/longstride] [--python python3]
#                                       [--steps 6] [--seconds 3] [--limit 400] [--only NAME[,NAME]]
#                                       [--recompute none|selective|block] [--no-peer] [--set KEY=VALUE ...]
#
# --peer: a script to time instead of model_torch.py in this folder. It takes `NAME --ckpt 0|1 --steps N --batch B` and
# prints a line of JSON with `tok_s` and `peak_GiB`. NAME: enwik8_fixed, cifar_strided, imagenet64, audio65k, audio262k,
# audio1m. Both take the same batch, in one piece, in bf16 and without dropout, which the peer lacks.
# --set: overrides a key of our recipes, as in --set train.residual=bf16, which is how the peer keeps the residual
# stream.
# --limit: seconds that one run may take, including compilation (200 and more for the enwik8 peer); for a run without a
# figure the table says why.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
peer="$here/model_torch.py" command="$root/build/cuda/longstride" python=python3 steps=6 seconds=3 limit=400 only="" policies="none block" settings=()
while [ $# -gt 0 ]; do
  case "$1" in
    --peer) peer=$2; shift 2 ;;
    --command) command=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --only) only=",$2,"; shift 2 ;;
    --recompute) policies=$2; shift 2 ;;
    --no-peer) peer=none; shift ;;
    --set) settings+=(--set "$2"); shift 2 ;;
    *) echo "compare_gpu.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
done
[ "$peer" = none ] || [ -f "$peer" ] || { echo "compare_gpu.sh: no script at $peer" >&2; exit 2; }
[ -x "$command" ] || { echo "compare_gpu.sh: no program at $command; build it or give --command" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name, recipe, sequences per step
cases="enwik8_fixed table1/enwik8-fixed 8
cifar_strided table1/cifar10-strided 32
imagenet64 table1/imagenet64-strided 8
audio65k table4/audio-65k 1
audio262k table4/audio-262k 1
audio1m table4/audio-1m 1"

run_ours() { # recipe, batch, recompute
  timeout "$limit" "$command" bench step "$root/recipes/$1.yaml" --steps "$steps" --seconds "$seconds" --json \
    --set "train.global_batch=$2" --set "train.micro_batch=$2" --set "model.recompute=$3" --set model.dropout=0 "${settings[@]}"
}
run_peer() { # name, batch, recompute
  [ "$peer" != none ] || return 0
  timeout "$limit" "$python" "$peer" "$1" --steps "$steps" --batch "$2" --ckpt "$([ "$3" = none ] && echo 0 || echo 1)"
}

while read -r name recipe batch; do
  [ -z "$only" ] || [[ "$only" == *",$name,"* ]] || continue
  for policy in $policies; do
    out="$work/$name.$policy"
    run_ours "$recipe" "$batch" "$policy" >"$out.ours" 2>"$out.ours.error" || echo "exit code $?" >>"$out.ours.error"
    run_peer "$name" "$batch" "$policy" >"$out.peer" 2>"$out.peer.error" || echo "exit code $?" >>"$out.peer.error"
    echo "$name $policy" >>"$work/order"
    echo "done: $name, recompute $policy, ${SECONDS} s" >&2
  done
done <<<"$cases"

"$python" "$here/compare_gpu.py" "$work"
