#!/usr/bin/env bash
# Training as a user runs it: the same losses on any number of ranks, the same bits run after run, and a run that is
# killed and resumed ends in the bits of one that was not.
#
#   training.sh LONGSTRIDE CASE        cases: ranks, kill, kill_ranks, sigterm, elastic
set -euo pipefail
longstride=$1
scenario=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

fail() { echo "FAILED: $*" >&2; exit 1; }
ranks() { # ranks N command...
  local n=$1; shift
  if [ "$n" = 1 ]; then "$@"; else mpirun --bind-to none -n "$n" "$@"; fi
}
train() { # train RANKS RUN [options]
  local n=$1 run=$2; shift 2
  ranks "$n" "$longstride" train recipe.yaml --run "$run" "$@" >"$run.log" 2>&1 || { cat "$run.log"; fail "train $n $run $*"; }
}
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([-0-9.e]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
same_bits() { # the whole last checkpoint but state.json, which tells the number of ranks
  for f in model.safetensors optimizer-00000-of-00001.safetensors; do
    cmp "$1/checkpoints/step-00000020/$f" "$2/checkpoints/step-00000020/$f" || fail "$f of $1 and $2 differ"
  done
}
same_losses() { # to 1e-5 relative, step by step
  paste -d ' ' <(losses "$1") <(losses "$2") |
    awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-5 * $2) { print "step " $1 ": " $2 " against " $4; bad = 1 } }
         END { exit bad || NR != 20 }' || fail "losses of $1 and $2 differ"
}
wait_for_step() { # until RUN/metrics.jsonl has step N
  for _ in $(seq 3000); do
    if [ -f "$1/metrics.jsonl" ] && grep -q "\"step\":$2," "$1/metrics.jsonl"; then return; fi
    sleep 0.01
  done
  fail "$1 never reached step $2"
}

cat "$here"/*.sh "$here"/../../docs/*.md | head -c 120000 >text.bin
"$longstride" prepare bytes --input text.bin --split 0.9,0.05,0.05 --output text.h5 >/dev/null 2>&1
cat >recipe.yaml <<'R'
name: toy
data: {kind: bytes, path: text.h5, context: 512}
model:
  kind: sparse_transformer
  layers: 2
  width: 64
  heads: 2
  dropout: 0.1
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 32, summary: 8, distinct_heads: true}
  recompute: block
train: {steps: 20, global_batch: 8, micro_batch: 2, lr: 1.0e-3, warmup: 5, seed: 3, log_every: 1, checkpoint_every: 5, ema: 0.9}
R

train 1 whole
[ "$(losses whole | wc -l)" = 20 ] || fail "20 steps logged"
losses whole | awk 'NR == 1 { first = $2 } END { exit !($2 < first - 0.5) }' || fail "the loss does not fall"

case $scenario in
  ranks)
    train 1 again
    same_bits whole again
    for n in 2 4; do
      train "$n" "ranks$n"
      same_losses whole "ranks$n"
    done
    train 4 ranks4_again
    same_bits ranks4 ranks4_again
    ;;
  kill)
    "$longstride" train recipe.yaml --run killed >killed.log 2>&1 &
    pid=$!
    wait_for_step killed 11
    kill -9 "$pid"
    wait "$pid" 2>/dev/null && fail "the run was over before it could be killed"
    [ ! -e killed/checkpoints/step-00000020 ] || fail "the run was over before it could be killed"
    train 1 killed --resume
    same_bits whole killed
    same_losses whole killed
    ;;
  kill_ranks)
    train 4 whole4
    mpirun --bind-to none -n 4 "$longstride" train recipe.yaml --run killed >killed.log 2>&1 &
    pid=$!
    wait_for_step killed 11
    kill -9 "$(pgrep -P "$pid" | tail -n 1)" || fail "no rank to kill"
    began=$(date +%s)
    wait "$pid" && fail "mpirun reports success after a rank was killed"
    [ $(($(date +%s) - began)) -le 10 ] || fail "the job outlived the killed rank by more than 10 s"
    train 4 killed --resume
    same_bits whole4 killed
    same_losses whole4 killed
    ;;
  sigterm)
    "$longstride" train recipe.yaml --run stopped >stopped.log 2>&1 &
    pid=$!
    wait_for_step stopped 7
    kill -TERM "$pid"
    wait "$pid" || fail "SIGTERM ends the run with $?"
    [ ! -e stopped/checkpoints/step-00000020 ] || fail "the run was over before it could be stopped"
    train 1 stopped --resume
    same_bits whole stopped
    ;;
  elastic)
    "$longstride" train recipe.yaml --run moved >moved.log 2>&1 &
    pid=$!
    wait_for_step moved 11
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    train 2 moved --resume
    same_losses whole moved
    ;;
  *) fail "unknown case $scenario" ;;
esac
echo "$scenario: passed"
