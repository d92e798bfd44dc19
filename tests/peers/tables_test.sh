#!/usr/bin/env bash
# `run.py steps` and `run.py runs` without PyTorch or a GPU: their tables, and how they refuse wrong arguments.
#
#   tests/peers/tables_test.sh LONGSTRIDE
set -euo pipefail
run=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)/run.py
longstride=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tables_test.sh: $1" >&2; exit 1; }
refuses() { # sentence, arguments
  local status=0
  python3 "$run" "${@:2}" >/dev/null 2>"$work/said" || status=$?
  [ "$status" != 0 ] && grep -qF -- "$1" "$work/said" && ! grep -q Traceback "$work/said" ||
    fail "ends with $status after '${*:2}': $(cat "$work/said")"
}
printed() { grep -qE -- "$1" "$work/printed" || fail "printed $(cat "$work/printed"), not $1"; }

refuses "there is no command 'steep'" steep
refuses "needs a peer, one of sparse" time bert
refuses "there is no case 'bert'" steps --only bert
refuses "no program at $work/none" steps --command "$work/none"
refuses "--text: $work/none is no file" runs text --text "$work/none" --output "$work/out"
seq 20000 >"$work/text"
refuses "there is no run 'bert'" runs text --text "$work/text" --output "$work/out" --runs "transformer-xl bert"
refuses "there is no run 'bert'" runs rows --data "$work" --output "$work/out" --rows bert

cat >"$work/program" <<'P'
#!/bin/sh
[ "$1 $2" = "bench step" ] && [ -f "$3" ] || exit 2
case $3 in *dense*) echo "out of memory"; exit 3 ;; esac
echo '{"tokens_per_second": 300.0, "milliseconds": 10.0, "planned_bytes": 2147483648}'
P
chmod +x "$work/program"
python3 "$run" steps --device cpu --no-peer --only small_fixed,small_dense --command "$work/program" >"$work/printed" 2>"$work/said"
printed '^\| small_fixed \| none \| 300, 300 \| not run \|  \| 2\.0 \|'
printed '^\| small_dense \| none \| out of memory / ended with 3 \|'

small="model.layers=1 model.width=16 model.heads=2 data.context=32 train.steps=12 train.warmup=2 train.global_batch=4
  train.log_every=2"
all() {
  python3 "$run" runs text --text "$work/text" --output "$work/out" --device cpu --command "$longstride" --set "$small" \
    --context 32 "$@" >"$work/printed" 2>"$work/said"
}
all --runs "transformer-xl adaptive-house" --seeds "1 2" || fail "$(cat "$work/said" "$work"/out/*/*.log)"
for name in transformer-xl adaptive-house; do
  printed "^\| $name \| [0-9.]+ \([0-9.]+, [0-9.]+\) \| [0-9]+ \| 12 \| 1,536 \|$"
done
# It would be refused if it were trained again.
all --runs transformer-xl --seeds 2 || fail "a run was repeated: $(cat "$work/said")"

echo '{"trained_seconds": 480.2, "steps": 1500, "bytes_seen": 147456000, "bits_per_byte": 1.25}' >"$work/out/seed-1/adaptive-peer.peer"
touch "$work/out/seed-1"/{text.ours,adaptive-peer.peer,longformer-peer.peer,compressive-peer.peer}.done
all --runs "text adaptive-peer longformer-peer compressive-peer" || fail "$(cat "$work/said")"
[ "$(sed -n 's/^| \([a-z-]*\) .*/\1/p' "$work/printed" | tr '\n' ' ')" = \
  "run adaptive-peer compressive-peer run text longformer-peer " ] ||
  fail "models with memories and without in one table: $(cat "$work/printed")"
printed '^\| adaptive-peer \| 1\.2500 \| 480 \| 1,500 \| 147,456,000 \|'
printed '^\| compressive-peer \| not run \|'

mkdir -p "$work/rows/seed-1/enwik8-fixed/run"
echo '{"rows": [{"bits_per_byte": 1.5, "tokens": 2000, "run": "run", "seconds_per_iteration": 0.5}]}' \
  >"$work/rows/seed-1/enwik8-fixed/table1.json"
printf '{"step": %d, "loss": 1, "bits_per_byte": 2}\n' 1 2 3 >"$work/rows/seed-1/enwik8-fixed/run/metrics.jsonl"
touch "$work/rows/seed-1"/enwik8-fixed.{ours,peer}.done
python3 "$run" runs rows --data "$work" --output "$work/rows" --rows enwik8-fixed >"$work/printed"
printed '^\| enwik8-fixed \| 1\.5000 \| 2,000 \| not run \|  \|$'
grep -q polyline "$work/rows/curves.svg" || fail "draws no curve"
