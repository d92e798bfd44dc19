#!/usr/bin/env bash
# Ranks that are killed, stopped or asked to stop: the whole job ends in time, with one message that names the rank, and
# resuming gives the bits of an undisturbed run.
#
#   faults.sh LONGSTRIDE CASE [TIMES]      cases: kill, stop, signal, signal_saving, signal_evaluating, full_disk
#   faults.sh LONGSTRIDE slow_disk LIBRARY  rank 0's disk is slower than a rank may hang; built from slow_disk.cpp
#   faults.sh LONGSTRIDE start LIBRARY     trouble while the ranks connect; LIBRARY: built from troubled_start.cpp
#
# RANKS sets their number, two or more; default: four. On the CPU, or with LONGSTRIDE_TEST_DEVICE=gpu on as many GPUs,
# where steps take so little time that runs are longer.
set -euo pipefail
longstride=$1
scenario=$2
times=${3:-3}
ranks=${RANKS:-4}
middle=$((ranks / 2)) last=$((ranks - 1))
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
cleanup() {
  umount "$work/disk" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
longer=20
if [ "${LONGSTRIDE_TEST_DEVICE:-cpu}" = cpu ]; then
  longer=1
  export CUDA_VISIBLE_DEVICES=
fi
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
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
# one_message PATTERN: the job printed it once, and no other failure.
one_message() {
  [ "$(grep -a -c '^longstride: ' job.log)" = 1 ] && grep -a -q "^longstride: $1" job.log ||
    { cat job.log; fail "the job should say once: $1"; }
}
start() { # start RUN [options]: all ranks in the background; $pid is mpirun
  : >job.log
  local run=$1; shift
  mpirun --bind-to none -n "$ranks" "$longstride" train recipe.yaml --run "$run" "$@" >job.log 2>&1 &
  pid=$!
}
rank_of() { children_of "$pid" | sed -n "$(($1 + 1))p"; }  # mpirun starts its ranks in order
wait_for_saving() { # until RUN has a checkpoint that is being written
  for _ in $(seq 20000); do
    if saving "$1"; then return; fi
  done
  fail "$1 saves nothing"
}

case $scenario in
  kill)  # TIMES kills of one run, each at a random moment, some in the middle of saving
    steps=$(((times * 12 + 30) * longer))
    write_recipe "steps: $steps" "checkpoint_every: 3" "hang_seconds: 20"
    train "$ranks" whole
    for i in $(seq "$times"); do
      start killed $(resume_of killed)
      for _ in $(seq 1000); do  # until it trains; metrics after the checkpoint are rewritten
        if grep -a -q '^step ' job.log && [ -n "$(rank_of "$last")" ]; then break; fi
        sleep 0.02
      done
      sleep "0.$(printf %02d $((RANDOM % 35)))"
      [ $((i % 3)) != 0 ] || wait_for_saving killed
      r=$((RANDOM % ranks))
      kill -9 "$(rank_of $r)" || fail "kill $i: there is no rank $r"
      end_of "kill $i (of rank $r)" nonzero 10
      one_message "rank $r (.*) has ended without a word"
    done
    train "$ranks" killed $(resume_of killed)
    same_bits whole killed "$steps"
    ;;
  stop)
    steps=$((120 * longer))
    write_recipe "steps: $steps" "checkpoint_every: 4" "hang_seconds: 4"
    train "$ranks" whole
    for r in $middle 0; do
      start stopped $([ "$r" = "$middle" ] || echo --resume)
      wait_for_step stopped $((r == middle ? 20 : 60))
      kill -STOP "$(rank_of $r)"
      end_of "stop of rank $r" nonzero 10
      one_message "rank $r (.*) has not answered for [0-9]* s"
    done
    train "$ranks" stopped --resume
    same_bits whole stopped "$steps"
    ;;
  start)  # rank 0 accepts the others' connections 5 s late; strangers connect first
    write_recipe "steps: 20" "checkpoint_every: 10" "hang_seconds: 4"
    train "$ranks" whole
    for trouble in late strangers; do
      mpirun --bind-to none --mca btl self,vader -n "$ranks" -x "LD_PRELOAD=$3" -x "TROUBLE=$trouble" \
        "$longstride" train recipe.yaml --run "$trouble" >job.log 2>&1 &
      pid=$!
      if [ "$trouble" = late ]; then
        for _ in $(seq 500); do
          if [[ "$(cat "/proc/$(rank_of 0)/stat" 2>/dev/null)" == *") T "* ]]; then break; fi
          sleep 0.02
        done
        [ ! -e late/metrics.jsonl ] || fail "rank 0 should have stopped before training"
        sleep 5
        kill -CONT "$(rank_of 0)"
      fi
      end_of "a start with trouble ($trouble)" 0 15
      same_bits whole "$trouble" 20
    done
    ;;
  signal)
    steps=$((400 * longer))
    write_recipe "steps: $steps" "checkpoint_every: 100" "hang_seconds: 20"
    train "$ranks" whole
    resume=
    at=10
    for signal in USR1:$last TERM:1 USR1:0; do
      start asked $resume
      wait_for_step asked "$at"
      kill "-${signal%:*}" "$(rank_of "${signal#*:}")"
      end_of "SIG${signal%:*} to rank ${signal#*:}" 0 10
      grep -a -q "^stopped at step" job.log || { cat job.log; fail "the run was over before it could be stopped"; }
      resume=--resume
      at=$((at + 25))
    done
    # mpirun forwards SIGTERM to the ranks; whatever they do, it exits with 1 (Open MPI 4.1).
    start asked --resume
    wait_for_step asked "$at"
    kill -TERM "$pid"
    end_of "SIGTERM to mpirun" nonzero 10
    grep -a -q "^stopped at step" job.log || { cat job.log; fail "SIGTERM to mpirun does not reach the ranks"; }
    train "$ranks" asked --resume
    same_bits whole asked "$steps"
    ;;
  signal_saving)
    steps=$((longer > 1 ? 300 : 60))
    write_recipe "steps: $steps" "checkpoint_every: 1" "hang_seconds: 20"
    train "$ranks" whole
    resume=
    for signal in TERM:$middle USR1:0 TERM:$last; do
      start asked $resume
      wait_for_step asked $(($(last_checkpoint asked) + 6))
      wait_for_saving asked
      kill "-${signal%:*}" "$(rank_of "${signal#*:}")"
      end_of "SIG${signal%:*} to rank ${signal#*:} while saving" 0 10
      stopped=$(sed -n 's/^stopped at step \([0-9]*\);.*/\1/p' job.log)
      [ "$stopped" = "$(last_checkpoint asked)" ] || { cat job.log; fail "stopped at '$stopped', saved $(last_checkpoint asked)"; }
      ! compgen -G "asked/checkpoints/.tmp-*" >/dev/null || fail "something is left of a checkpoint"
      resume=--resume
    done
    train "$ranks" asked --resume
    same_bits whole asked "$steps"
    ;;
  signal_evaluating)  # an evaluation of a minute or more, of which nothing stays
    evaluated=$((longer > 1 ? 0 : 6000))
    for _ in $(seq $((longer > 1 ? 400 : 60))); do cat text.bin; done >long.bin
    "$longstride" prepare bytes --input long.bin --split 0.1,0.8,0.1 --output text.h5 --force >/dev/null 2>&1
    write_recipe "steps: 400" "checkpoint_every: 100" "hang_seconds: 20" "evaluate_every: 3"
    sed -i "s/evaluate_windows: 8/evaluate_windows: $evaluated/" recipe.yaml
    start asked
    wait_for_step asked 3
    sleep 0.5
    kill -USR1 "$(rank_of "$last")"
    end_of "SIGUSR1 while evaluating" 0 5
    grep -a -q "^step 3: not evaluated" job.log || { cat job.log; fail "it was not evaluating"; }
    grep -a -q "^stopped at step 3;" job.log || { cat job.log; fail "it did not stop at step 3"; }
    ! grep -q '"split"' asked/metrics.jsonl || fail "an abandoned evaluation leaves a figure"
    ! grep -q '"valid_loss": *[0-9]' asked/checkpoints/step-00000003/state.json || fail "the checkpoint has a figure"
    ;;
  slow_disk)  # everything that rank 0 does with files between two steps: metrics, samples, checkpoints
    write_recipe "steps: 12" "checkpoint_every: 6" "hang_seconds: 1" "evaluate_every: 6" "sample_every: 6" "sample_length: 20"
    train "$ranks" whole
    SLOW_DISK=$work/slow SLOW_SECONDS=1.5
    export SLOW_DISK SLOW_SECONDS
    mpirun --bind-to none -n "$ranks" -x "LD_PRELOAD=$3" -x SLOW_DISK -x SLOW_SECONDS \
      "$longstride" train recipe.yaml --run waited >job.log 2>&1 &
    pid=$!
    wait_for_step waited 1
    touch "$SLOW_DISK"
    end_of "a slow disk" 0 120
    rm "$SLOW_DISK"
    same_bits whole waited 12
    ;;
  full_disk)  # first a limit on file size, which any user can set; then a small disk, which needs root
    write_recipe "steps: 40" "checkpoint_every: 10" "hang_seconds: 20"
    train "$ranks" whole
    start limited
    wait_for_step limited 11
    kill -USR1 "$(rank_of 0)"
    end_of "the first part" 0 10
    saved=$(last_checkpoint limited)
    mpirun --bind-to none --mca btl tcp,self -n "$ranks" bash -c 'ulimit -f 200; exec "$@"' - "$longstride" train recipe.yaml --run limited --resume >job.log 2>&1 &
    pid=$!
    end_of "a file that may not grow" 2 60
    one_message "rank [0-9] (.*): the checkpoint of step [0-9]* cannot be saved: .*File too large.*; the last checkpoint is step $saved"
    [ "$saved" = "$(last_checkpoint limited)" ] || fail "step $saved is not the last checkpoint any more"
    ! compgen -G "limited/checkpoints/.tmp-*" >/dev/null || fail "something is left of the checkpoint that failed"
    train "$ranks" limited --resume
    same_bits whole limited 40
    mkdir disk
    if ! mount -t tmpfs -o size=16m longstride-test disk 2>/dev/null; then
      echo "full_disk: passed, except for the small disk, which needs root"
      exit 0
    fi
    size=$(du -sk whole/checkpoints/step-00000040 | cut -f 1)
    mount -o "remount,size=$((size * 5 / 2))k" disk
    start disk/run
    end_of "a full disk" 2 60
    one_message "rank [0-9] (.*): the checkpoint of step 30 cannot be saved: .*No space left on device.*; the last checkpoint is step 20"
    mount -o remount,size=64m disk
    train "$ranks" disk/run --resume
    same_bits whole disk/run 40
    ;;
  *) fail "unknown case $scenario" ;;
esac
echo "$scenario: passed"
