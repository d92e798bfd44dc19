#!/usr/bin/env bash
# Parity with PyTorch over 200 steps for every family: export, train, train in PyTorch, compare.
#
#   tests/peers/parity.sh --data DIR --output DIR [--command build/cuda/longstride] [--python python3]
#                                  [--device gpu] [--families "enwik8 cifar10 imagenet64 audio"]
#                                  [--precisions "fp32 bf16"] [--set KEY=VALUE ...]
#
# --data: a folder with text.h5, cifar10.h5, images.h5 and audio.h5 from `longstride prepare`. OUTPUT gets a JSON line
# per comparison (results.jsonl), a plot of each and, with both precisions, one of all (parity.svg).
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data="" output="" command=build/cuda/longstride python=python3 device=gpu
families="enwik8 cifar10 imagenet64 audio" precisions="fp32 bf16" settings=()
while [ $# -gt 0 ]; do
  case "$1" in
    --data) data=$2 ;;
    --output) output=$2 ;;
    --command) command=$2 ;;
    --python) python=$2 ;;
    --device) device=$2 ;;
    --families) families=$2 ;;
    --precisions) precisions=$2 ;;
    --set) settings+=(--set "$2") ;;
    *) echo "parity.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] && [ -n "$output" ] || { echo "parity.sh: needs --data and --output; see the top of the file" >&2; exit 2; }
declare -A file=([enwik8]=text [cifar10]=cifar10 [imagenet64]=images [audio]=audio)
torch_device=cpu
[ "$device" = cpu ] || torch_device=cuda
mkdir -p "$output"
failed=0
for family in $families; do
  recipe="$here/recipes/parity/$family.yaml"
  at="$output/$family"
  set=(--set "data.path=$data/${file[$family]}.h5" "${settings[@]}")
  "$command" export "$recipe" "${set[@]}" --output "$at" --force
  runs=()
  for precision in $precisions; do
    rm -rf "$at/$precision"
    [ $precision = fp32 ] && runs+=(fp32) || runs+=(bf16 bf16:1 bf16:2 bf16:3 bf16:4)
    began=$(date +%s%N)
    "$command" train "$recipe" "${set[@]}" --set train.precision=$precision --device "$device" --run "$at/$precision" \
      --log-level warning 2>"$at/$precision.log" || { tail -n 3 "$at/$precision.log" >&2; failed=1; }
    echo "$family $precision: ours in $((($(date +%s%N) - began) / 1000000)) ms"
  done
  "$python" "$here/parity_torch.py" "$at" --runs "${runs[@]}" --device $torch_device
  for precision in $precisions; do
    peers=("$at/torch-fp32.json")
    controls=()
    if [ $precision != fp32 ]; then
      peers=("$at"/torch-bf16-?.json)
      controls=(--nearest "$at/torch-bf16.json")
      [[ " $precisions " != *" fp32 "* ]] || controls+=(--exact "$at/torch-fp32.json")
    fi
    "$python" "$here/parity_compare.py" $precision "$at/$precision" "${peers[@]}" "${controls[@]}" \
      --svg "$output/$family-$precision.svg" | tee -a "$output/results.jsonl" || failed=1
  done
done
if [[ " $precisions " == *" fp32 "* && " $precisions " == *" bf16 "* ]]; then
  folders=()
  for family in $families; do folders+=("$output/$family"); done
  "$python" "$here/plot.py" parity "$output/parity.svg" "${folders[@]}" || failed=1
fi
exit $failed
