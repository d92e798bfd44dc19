#!/usr/bin/env bash
# Training as a user runs it: the same losses on any number of ranks, the same bits in every run, and a run that is
# killed and resumed ends with the bits of one that was not.
#
#   training.sh LONGSTRIDE CASE        cases: ranks, divided, kill, kill_ranks, sigterm, threads, unlike, chosen,
#                                    elastic, elastic_sharded
#
# LONGSTRIDE_TEST_CONTEXT: another context than 512, for a slow build.
set -euo pipefail
longstride=$1
scenario=$2
here=$(CDPATH= cd -- "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

source "$here/run_support.sh"
same_losses() { # to 1e-5 relative, step by step
  paste -d ' ' <(losses "$1") <(losses "$2") |
    awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-5 * $2) { print "step " $1 ": " $2 " against " $4; bad = 1 } }
         END { exit bad || NR != 20 }' || fail "losses of $1 and $2 differ"
}
context=${LONGSTRIDE_TEST_CONTEXT:-512}
write_recipe "steps: 20" "checkpoint_every: 5"

train 1 whole
[ "$(losses whole | wc -l)" = 20 ] || fail "20 steps logged"
losses whole | awk 'NR == 1 { first = $2 } END { exit !($2 < first - 0.5) }' || fail "the loss does not fall"

case $scenario in
  ranks)
    train 1 again
    same_bits whole again 20
    for n in 2 4; do
      train "$n" "ranks$n"
      same_losses whole "ranks$n"
    done
    train 4 ranks4_again
    same_bits ranks4 ranks4_again 20
    ;;
  kill)
    "$longstride" train recipe.yaml --run killed >killed.log 2>&1 &
    pid=$!
    wait_for_step killed 11
    kill -9 "$pid"
    wait "$pid" 2>/dev/null && fail "the run was over before it could be killed"
    [ ! -e killed/checkpoints/step-00000020 ] || fail "the run was over before it could be killed"
    train 1 killed --resume
    same_bits whole killed 20
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
    same_bits whole4 killed 20
    same_losses whole4 killed
    ;;
  sigterm)
    "$longstride" train recipe.yaml --run stopped >stopped.log 2>&1 &
    pid=$!
    wait_for_step stopped 7
    kill -TERM "$pid"
    wait "$pid" || fail "SIGTERM ends the run with $?"
    [ ! -e stopped/checkpoints/step-00000020 ] || fail "the run was over before it could be stopped"
    last=$(losses stopped | awk 'END { printf "%08d", $1 }')
    [ -e "stopped/checkpoints/step-$last" ] || fail "there is no checkpoint of step $last, at which the run stopped"
    train 1 stopped --resume
    same_bits whole stopped 20
    ;;
  threads)  # an impossible OMP_NUM_THREADS is reported once and does no harm
    for threads in 100000 0 abc; do
      OMP_NUM_THREADS=$threads train 1 "threads$threads"
      grep -q "^OMP_NUM_THREADS is '$threads', but must be a number from 1 to" train.log || fail "no warning about $threads threads"
      same_bits whole "threads$threads" 20
    done
    OMP_NUM_THREADS=100000 train 2 ranks2
    [ "$(grep -c 'OMP_NUM_THREADS is' train.log)" = 1 ] || fail "not exactly one of two ranks warns"
    same_losses whole ranks2
    OMP_NUM_THREADS=3 train 1 three
    ! grep -q 'OMP_NUM_THREADS' train.log || fail "3 threads are refused"
    same_bits whole three 20
    ;;
  unlike)  # ranks that were given different commands, recipes or options: one of them says so, and nothing is changed
    sed 's/seed: 3/seed: 4/' recipe.yaml >other.yaml
    unlike() { # unlike MESSAGE WORDS WORDS: the words of each rank
      local code=0
      timeout 60 mpirun --bind-to none -n 1 "$longstride" $2 : -n 1 "$longstride" $3 >train.log 2>&1 || code=$?
      [ "$code" = 2 ] && [ "$(grep -c '^longstride: ' train.log)" = 1 ] && grep -q "^longstride: $1" train.log ||
        { cat train.log; fail "'$2' and '$3' ended with $code"; }
      [ ! -e unlike ] || fail "'$2' and '$3' left a run"
    }
    train="train recipe.yaml --run unlike"
    unlike 'rank 1 (.*): train.seed is 4 on this rank, but 3 on rank 0; ' "$train" "train other.yaml --run unlike"
    unlike 'rank 1 (.*): the command is eval on this rank, but train on rank 0; ' "$train" "eval whole"
    unlike 'rank 1 (.*): the command is train on this rank, but bench step on rank 0; ' "bench step recipe.yaml" "$train"
    unlike 'rank 1 (.*): the command is --help or --version on this rank, but train on rank 0; ' "$train" "--version"
    unlike "rank 1 (.*): there is no option '--rnu' (did you mean '--run'?); see longstride train --help" \
      "$train" "train recipe.yaml --rnu unlike"
    unlike "rank 0 (.*): there is no command 'trian' (did you mean 'train'?); see longstride --help" "trian" "$train"
    unlike "there is no command 'trian' (did you mean 'train'?); see longstride --help" "trian" "trian"
    unlike 'rank 1 (.*): --split is valid on this rank, but test on rank 0; ' "eval whole --split test" "eval whole --split valid"
    unlike 'rank 1 (.*): train.seed is 4 on this rank, but 3 on rank 0; ' "bench step recipe.yaml" "bench step other.yaml"
    [ "$(mpirun --bind-to none -n 2 "$longstride" --version)" = "$("$longstride" --version)" ] || fail "two ranks print a version"
    ;;
  chosen)  # the checkpoint that rank 0 has chosen is scored, also if another rank finds a newer one
    mkdir -p older/run/checkpoints newer
    cp text.h5 older && cp text.h5 newer && cp -r whole newer/run && cp -r whole/checkpoints/step-00000010 older/run/checkpoints
    score() { "$@" 2>score.log | sed 's/,.* step/ step/' || { cat score.log; fail "$*"; }; }
    (cd older && score "$longstride" eval run) >one
    grep -q 'step 10, ' one || fail "one rank scores: $(cat one)"
    score mpirun --bind-to none -n 1 -wdir "$work/older" "$longstride" eval run : -n 1 -wdir "$work/newer" "$longstride" eval run >two
    cmp one two || fail "two ranks score $(cat two) instead of $(cat one)"
    ;;
  divided)
    train 4 ranks4
    train 4 sharded --set optimizer.shard=true --set parallel.bucket=20000
    train 4 bucketed --set parallel.bucket=20000
    # The optimizer's files are divided differently, but the weights and the norm of every step show its state.
    cmp {bucketed,sharded}/checkpoints/step-00000020/model.safetensors || fail "weights differ when sharded"
    norms() { sed -n 's/.*\("step":[0-9]*,"loss".*\),"tokens_per_second.*/\1/p' "$1/metrics.jsonl"; }
    [ "$(norms bucketed | grep -c grad_norm)" = 20 ] || fail "20 norms"
    cmp <(norms bucketed) <(norms sharded) || fail "norms differ when sharded"
    for p in 2 4; do
      train 4 "context$p" --set parallel.sequence_ranks="$p" --set train.micro_batch=1
      same_losses whole "context$p"
    done
    train 4 both --set parallel.sequence_ranks=2 --set train.micro_batch=1 --set optimizer.shard=true
    same_losses whole both
    ;;
  elastic_sharded)
    "$longstride" train recipe.yaml --run moved >moved.log 2>&1 &
    pid=$!
    wait_for_step moved 11
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    train 4 moved --resume --set optimizer.shard=true --set parallel.sequence_ranks=2 --set train.micro_batch=1
    same_losses whole moved
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
