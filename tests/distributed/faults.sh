#!/usr/bin/env bash
# Ranks that are killed, stopped or asked to stop: the whole job ends in time, with one message that names the rank, and
# resuming gives the bits of a run that nothing happened to.
#
#   faults.sh LONGSTRIDE CASE [TIMES]      cases: kill, stop, signal
set -euo pipefail
longstride=$1
scenario=$2
times=${3:-3}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
source "$here/run_support.sh"
RANDOM=${SEED:-$$}
echo "random seed ${SEED:-$$}"

# end_of WHAT CODE|nonzero SECONDS: waits for $pid, which was started as a job of this shell.
end_of() {
  local began code=0
  began=$(date +%s%N)
  wait "$pid" || code=$?
  local took=$((($(date +%s%N) - began) / 1000000))
  if [ "$2" = nonzero ]; then [ "$code" != 0 ]; else [ "$code" = "$2" ]; fi ||
    { cat job.log; fail "$1: the job ended with $code, not $2"; }
  [ "$took" -le $(($3 * 1000)) ] || { cat job.log; fail "$1: the job took $took ms to end, more than $3 s"; }
}
# one_message PATTERN: the job said it once, and no other failure.
one_message() {
  [ "$(grep -a -c '^longstride: ' job.log)" = 1 ] && grep -a -q "^longstride: $1" job.log ||
    { cat job.log; fail "the job should say once: $1"; }
}
start() { # start RUN [options]: 4 ranks in the background; $pid is mpirun
  : >job.log
  local run=$1; shift
  mpirun --bind-to none -n 4 "$longstride" train recipe.yaml --run "$run" "$@" >job.log 2>&1 &
  pid=$!
}
rank_of() { pgrep -P "$pid" | sed -n "$(($1 + 1))p"; }  # mpirun starts its ranks in order
last_step() { if [ -f "$1/metrics.jsonl" ]; then grep -c '"loss"' "$1/metrics.jsonl"; else echo 0; fi; }

case $scenario in
  kill)  # TIMES kills of one run after the other, each at a random moment: also in the middle of saving
    steps=$((times * 12 + 30))
    write_recipe "steps: $steps" "checkpoint_every: 3" "hang_seconds: 20"
    train 4 whole
    for i in $(seq "$times"); do
      resume=()
      [ -z "$(ls killed/checkpoints 2>/dev/null | grep '^step-')" ] || resume=(--resume)
      before=$(last_step killed)
      start killed "${resume[@]}"
      for _ in $(seq 1000); do  # until it trains; metrics after the checkpoint are written anew
        if grep -a -q '^step ' job.log && [ -n "$(rank_of 3)" ]; then break; fi
        sleep 0.02
      done
      sleep "0.$(printf %02d $((RANDOM % 35)))"
      r=$((RANDOM % 4))
      kill -9 "$(rank_of $r)" || fail "kill $i: there is no rank $r"
      end_of "kill $i (of rank $r)" nonzero 10
      one_message "rank $r (.*) has ended without a word"
    done
    train 4 killed --resume
    same_bits whole killed "$steps"
    ;;
  stop)
    write_recipe "steps: 120" "checkpoint_every: 4" "hang_seconds: 4"
    train 4 whole
    for r in 2 0; do
      start stopped $([ "$r" = 2 ] || echo --resume)
      wait_for_step stopped $((r == 2 ? 20 : 60))
      kill -STOP "$(rank_of $r)"
      end_of "stop of rank $r" nonzero 10
      one_message "rank $r (.*) has not answered for [0-9]* s"
    done
    train 4 stopped --resume
    same_bits whole stopped 120
    ;;
  signal)
    write_recipe "steps: 120" "checkpoint_every: 100" "hang_seconds: 20"
    train 4 whole
    resume=
    at=10
    for signal in USR1:3 TERM:1 USR1:0; do
      start asked $resume
      wait_for_step asked "$at"
      kill "-${signal%:*}" "$(rank_of "${signal#*:}")"
      end_of "SIG${signal%:*} to rank ${signal#*:}" 0 10
      grep -a -q "^stopped at step" job.log || { cat job.log; fail "the run was over before it could be stopped"; }
      resume=--resume
      at=$((at + 25))
    done
    # mpirun passes SIGTERM on to the ranks; whatever they do, it ends with 1 (Open MPI 4.1).
    start asked --resume
    wait_for_step asked "$at"
    kill -TERM "$pid"
    end_of "SIGTERM to mpirun" nonzero 10
    grep -a -q "^stopped at step" job.log || { cat job.log; fail "SIGTERM to mpirun does not reach the ranks"; }
    train 4 asked --resume
    same_bits whole asked 120
    ;;
  *) fail "unknown case $scenario" ;;
esac
echo "$scenario: passed"
