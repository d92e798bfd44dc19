#!/usr/bin/env bash
# Trains the four models with distances or memories for about eight minutes each, in their published form, in the house's
# form, and as strong PyTorch for as many seconds; one run per GPU. Then tabulates bits per byte of the test split, models
# with memories apart from those with windows.
#
#   tests/peers/decoders/train_all.sh --text FILE --output DIR [--runs "transformer-xl transformer-xl-peer"]
#                                        [--seconds 480] [--seeds "1 2 3"] [--gpus 2] [--set "KEY=VALUE ..."]
#                                        [--context 512] [--command build/cuda/longstride] [--python python3]
#                                        [--device gpu] [--ahead 0]
#
# --text: the text itself, as longstride and the peers divide it alike. Runs are recipes/survey/text-8min-RUN.yaml, with
# their own numbers of steps, and RUN-peer for a peer, which trains for --seconds; `text` is recipes/beyond/text-8min.yaml.
# The table has the seconds that training took, without starting, compiling and scoring. --set changes recipes, for a try.
# --ahead: how many of a peer's stages are compiled at once, before it trains; see the peer's --help.
# Models with memories are scored as 32 streams, each of which first reads eight windows of --context, 512, bytes.
# OUTPUT keeps every run (seed-N/RUN); those that have a result are not repeated. Exits with 1 if a run has failed.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text="" output="" seconds=480 gpus=1 command=build/cuda/longstride python=python3 seeds=1 device=gpu changes="" context=512 ahead=0
runs="text"
for system in transformer-xl adaptive compressive longformer; do runs+=" $system $system-house $system-peer"; done
while [ $# -gt 0 ]; do
  case "$1" in
    --text) text=$2 ;;
    --output) output=$2 ;;
    --runs) runs=$2 ;;
    --seconds) seconds=$2 ;;
    --seeds) seeds=$2 ;;
    --gpus) gpus=$2 ;;
    --set) changes=$2 ;;
    --context) context=$2 ;;
    --command) command=$2 ;;
    --python) python=$2 ;;
    --device) device=$2 ;;
    --ahead) ahead=$2 ;;
    *) echo "train_all.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
[ -f "$text" ] && [ -n "$output" ] ||
  { echo "train_all.sh: needs --text, a file, and --output; see the top of the file" >&2; exit 2; }
mkdir -p "$output"

# The peer's script and form, with scores in fp32: with bf16 the Compressive Transformer and Longformer diverged every time,
# and Transformer-XL once of three times. Models with memories ended lower by matrices on an H200 than by FlexAttention on
# an H100.
peer_of() {
  case "$1" in
    transformer-xl-peer) echo "transformer_xl_torch.py matrix" ;;
    adaptive-peer) echo "adaptive_span_torch.py matrix" ;;
    compressive-peer) echo "compressive_torch.py matrix" ;;
    longformer-peer) echo "longformer_torch.py chunks" ;;
    *) return 1 ;;
  esac
}
recipe_of() {
  local recipe=$here/../../../recipes/survey/text-8min-$1.yaml
  [ "$1" != text ] || recipe=$here/../../../recipes/beyond/text-8min.yaml
  [ -f "$recipe" ] && echo "$recipe"
}
for run in $runs; do
  peer_of "$run" >/dev/null || recipe_of "$run" >/dev/null ||
    { echo "train_all.sh: there is no run '$run'; see the top of the file" >&2; exit 2; }
done

ours() { # run, seed
  local at=$output/seed-$2/$1 options=() scored=(--batch 32) change
  # As many streams as the peers read, and as much before each: eight windows.
  [[ "$1" =~ ^(text|longformer.*)$ ]] || scored+=(--min-context $((8 * context)))
  for change in $changes; do options+=(--set "$change"); done
  "$command" train "$(recipe_of "$1")" --run "$at" --device "$device" --set data.path="$output/text.h5" \
    --set train.seed="$2" --set train.checkpoint_every=0 "${options[@]}" >"$at.log" 2>&1 &&
    "$command" eval "$at" --device "$device" --split test "${scored[@]}" --json >"$at.json" 2>>"$at.log"
}
theirs() { # run, seed
  local at=$output/seed-$2/$1 script form
  read -r script form <<<"$(peer_of "$1")"
  "$python" "$here/../$script" --attention "$form" --train "$text" --seconds "$seconds" --seed "$2" \
    --ahead "$ahead" >"$at.peer" 2>"$at.log"
}
once() { # ours or theirs, run, seed
  local mark=$output/seed-$3/$2.done
  [ -f "$mark" ] || { "$@" && touch "$mark"; }
}
export here text output seconds command python device changes context ahead
export -f peer_of recipe_of ours theirs once

[ -f "$output/text.h5" ] ||
  "$command" prepare bytes --input "$text" --split 0.9,0.05,0.05 --output "$output/text.h5" >"$output/prepare.log"
failed=0
for seed in $seeds; do
  mkdir -p "$output/seed-$seed"
  for run in $runs; do
    side=ours
    ! peer_of "$run" >/dev/null || side=theirs
    echo "0 once $side $run $seed"
  done
done | "$here/../../gpu/scripts/queue.sh" --gpus "$gpus" >&2 || failed=1
"$python" "$here/train_all_table.py" "$output" --runs $runs --seeds $seeds | tee "$output/results.md"
exit $failed
