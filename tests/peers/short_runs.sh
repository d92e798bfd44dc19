#!/usr/bin/env bash
# Trains every row of tables 1, 2 and 4 for some minutes on real data, with Longstride and with a PyTorch peer, one run
# per GPU; then tabulates their held-out bits per byte.
#
#   tests/peers/short_runs.sh --data DIR --output DIR [--peer model_torch.py] [--seconds 300]
#                                      [--gpus 4] [--command build/cuda/longstride] [--python python3]
#                                      [--rows "enwik8-fixed audio-1m"] [--seeds "1 2 3"]
#
# --data: a folder with text.h5, cifar10.h5, images.h5 and audio.h5 from `longstride prepare`. Both sides use the same
# sequences per step, the same dropout (in the table below), no recompute, and the recipe's learning rate with a
# twentieth of the time as warmup and a cosine to the end. Both train the peer's model: position tables `attention` and,
# for strided rows, local and column attention in turn (the recipes for pictures have the paper's tables and the
# authors' cycle of layers, which learn later: docs/notes/2026-11/results.md). The clock runs while they train, but not
# while they compile, choose algorithms or score. A seed determines weights, order of data and dropout; with several,
# every row is run with each, and the table has the means and the single figures. OUTPUT keeps every run (seed-N/ROW),
# results.md and the curves (curves.svg); runs that already have a result are not repeated. Exits with 1 if a run has
# failed.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data="" output="" peer="$here/model_torch.py" seconds=300 gpus=1 command=build/cuda/longstride python=python3 rows="" seeds=1
while [ $# -gt 0 ]; do
  case "$1" in
    --data) data=$2 ;;
    --output) output=$2 ;;
    --peer) peer=$2 ;;
    --seconds) seconds=$2 ;;
    --gpus) gpus=$2 ;;
    --command) command=$2 ;;
    --python) python=$2 ;;
    --rows) rows=" $2 " ;;
    --seeds) seeds=$2 ;;
    *) echo "short_runs.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] && [ -n "$output" ] ||
  { echo "short_runs.sh: needs --data and --output; see the top of the file" >&2; exit 2; }
mkdir -p "$output"

# row, table, the peer's name, data, sequences per step, dropout. Rows of other tables that are the same training are
# not repeated. In some minutes text is seen little more than once; the sample data of the others many times.
# CIFAR-10: with 32 pictures per step, 128 layers have some 60 steps of warmup in five minutes, and whether they leave
# the first plateau is random, on both sides; with 8 they have up to four times as many.
all="enwik8-dense table2 enwik8_dense text 8 0
enwik8-fixed table1 enwik8_fixed text 8 0
enwik8-strided table2 enwik8_strided text 8 0
cifar10-dense table2 cifar_dense cifar10 8 0.25
cifar10-fixed table2 cifar_fixed cifar10 8 0.25
cifar10-strided table1 cifar_strided cifar10 8 0.25
imagenet64-strided table1 imagenet64 images 8 0.25
audio-strided table1 audio65k audio 1 0.25
audio-262k table4 audio262k audio 1 0.25
audio-1m table4 audio1m audio 1 0.25"

ours() { # row, table, data, sequences, dropout, seed
  local across=()
  [ "$3" != audio ] || across=(--set data.cross_files=true)
  [[ "$1" != *-strided ]] || across+=(--set "model.attention.parts=[local, column]")
  "$command" reproduce "$2" --row "$1" --recipes "$here/../../recipes" --data "$data" --output "$output/seed-$6/$1" \
    --train-seconds "$seconds" --device gpu --set model.dropout="$5" --set model.recompute=none \
    --set model.positions=attention --set train.seed="$6" \
    --set train.global_batch="$4" --set train.micro_batch="$4" --set train.log_every=20 \
    --set train.checkpoint_every=1000000 "${across[@]}" >"$output/seed-$6/$1.ours" 2>&1
}
theirs() { # row, the peer's name, data, sequences, dropout, seed
  local across=()
  [ "$3" != audio ] || across=(--cross-files)
  "$python" "$here/train_gpu_torch.py" "$2" "$data/$3.h5" --peer "$peer" --seconds "$seconds" --batch "$4" --dropout "$5" \
    --seed "$6" --split test --windows 0 --every 20 "${across[@]}" >"$output/seed-$6/$1.peer" 2>"$output/seed-$6/$1.peer.log"
}

run() { # ours or theirs, row, the rest of what that takes
  local mark="$output/seed-${*: -1}/$2.$1.done"
  [ -f "$mark" ] || { "$@" && touch "$mark"; }
}
export here data output peer seconds command python
export -f ours theirs run

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r row table name kind batch dropout; do
  [ -z "$rows" ] || [[ "$rows" == *" $row "* ]] || continue
  echo "$row" >>"$work/rows"
  # The peers come first, because they compile: the longest runs should begin soonest.
  for seed in $seeds; do
    mkdir -p "$output/seed-$seed"
    echo "0 run theirs $row $name $kind $batch $dropout $seed" >>"$work/queue"
    echo "0 run ours $row $table $kind $batch $dropout $seed" >>"$work/ours"
  done
done <<<"$all"
[ -f "$work/ours" ] || { echo "short_runs.sh: --rows names none of the rows" >&2; exit 2; }
failed=0
cat "$work/queue" "$work/ours" | "$here/../gpu/scripts/queue.sh" --gpus "$gpus" >&2 || failed=1

"$python" "$here/short_runs.py" "$output" "$seconds" "$work/rows" $seeds | tee "$output/results.md"
mapfile -t folders < <(for seed in $seeds; do sed "s|^|$output/seed-$seed/|" "$work/rows"; done)
"$python" "$here/plot.py" short-runs "$output/curves.svg" "${folders[@]}"
exit $failed
