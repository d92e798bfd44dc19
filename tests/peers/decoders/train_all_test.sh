#!/usr/bin/env bash
# train_all.sh with small models on the CPU, and its table of a peer's run.
#
#   tests/peers/decoders/train_all_test.sh LONGSTRIDE
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
longstride=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "train_all_test.sh: $1" >&2; exit 1; }
small="model.layers=1 model.width=16 model.heads=2 data.context=32 train.steps=12 train.warmup=2 train.global_batch=4
  train.log_every=2"
all() {
  "$here/train_all.sh" --output "$work/out" --gpus 1 --device cpu --command "$longstride" --set "$small" --context 32 "$@" \
    >"$work/printed" 2>"$work/said"
}

status=0
all --text "$work/none" || status=$?
[ "$status" = 2 ] && grep -qF -- "needs --text, a file" "$work/said" || fail "no text: $status, $(cat "$work/said")"
seq 20000 >"$work/text"
status=0
all --text "$work/text" --runs "transformer-xl bert" || status=$?
[ "$status" = 2 ] && grep -qF "there is no run 'bert'" "$work/said" || fail "no such run: $status, $(cat "$work/said")"

all --text "$work/text" --runs "transformer-xl adaptive-house" --seeds "1 2" || fail "$(cat "$work/said" "$work"/out/*/*.log)"
for run in transformer-xl adaptive-house; do
  grep -qE "^\| $run \| [0-9.]+ \([0-9.]+, [0-9.]+\) \| [0-9]+ \| 12 \| 1,536 \|$" "$work/printed" ||
    fail "printed $(cat "$work/printed")"
done
# It would be refused if it were trained again.
all --text "$work/text" --runs transformer-xl --seeds 2 || fail "a run was repeated: $(cat "$work/said")"

echo '{"trained_seconds": 480.2, "steps": 1500, "bytes_seen": 147456000, "bits_per_byte": 1.25}' >"$work/out/seed-1/x-peer.peer"
python3 "$here/train_all_table.py" "$work/out" --runs text x-peer longformer-peer y-peer --seeds 1 >"$work/printed"
[ "$(sed -n 's/^| \([a-z-]*\) .*/\1/p' "$work/printed" | tr '\n' ' ')" = "run x-peer y-peer run text longformer-peer " ] ||
  fail "models with memories and without in one table: $(cat "$work/printed")"
grep -qF "| x-peer | 1.2500 | 480 | 1,500 | 147,456,000 |" "$work/printed" || fail "printed $(cat "$work/printed")"
grep -qF "| y-peer | not run" "$work/printed" || fail "printed $(cat "$work/printed")"
