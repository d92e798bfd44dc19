#!/usr/bin/env bash
# Kills -9 at random moments, half of them while a checkpoint or its second copy is being written; every run resumes, and
# ends with the bits and the losses of an undisturbed run.
#
#   kills.sh LONGSTRIDE [--kills 200] [--ranks "1 2 4"] [--models "MODEL ..."] [--device cpu|gpu] [--seed N]
#            [--seconds 1800]
#
# Models: sparse (the default), and with memories, from recipes/survey at toy size, transformer-xl, compressive,
# compressive-house and adaptive. The kills are divided between models and numbers of ranks. A kill hits a random rank,
# the whole job, or mpirun alone, whose ranks must end by themselves within 30 s. After every fourth the run also loses
# its checkpoints and continues from its mirror. A run that reaches its end is compared, and the next one begins. Prints
# a table row for each model and number of ranks. Fails at once, with the log, if a start or a resume fails, a job outlives a kill,
# bits differ, or `seconds` are over. Needs bash, coreutils, diffutils, sed, grep, python3 and, for two ranks or more,
# mpirun.
set -euo pipefail
longstride=$(realpath "$1"); shift
kills=200 counts="1 2 4" models=sparse device=cpu seed=$RANDOM seconds=1800
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=$2 ;;
    --ranks) counts=$2 ;;
    --models) models=$2 ;;
    --device) device=$2 ;;
    --seed) seed=$2 ;;
    --seconds) seconds=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
pid=
end_job() { # ends whatever is left of the job
  # shellcheck disable=SC2046
  [ -z "$pid" ] || kill -9 "$pid" $(children_of "$pid") 2>/dev/null || true
}
# Files that a killed Open MPI leaves would fill shared memory.
shared=$(mktemp -d /dev/shm/longstride-kills-XXXXXX)
trap 'end_job; rm -rf "$work" "$shared"' EXIT
cd "$work"
mkdir scratch
export TMPDIR=$work/scratch OMPI_MCA_btl_vader_backing_directory=$shared
steps=40
if [ "$device" = cpu ]; then export CUDA_VISIBLE_DEVICES=; else steps=400; fi
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export NCCL_NVLS_ENABLE=0 # NVLink multicast is a resource of the whole host
source "$here/run_support.sh"
write_recipe_of() { # write_recipe_of MODEL
  local keys=("steps: $steps" "checkpoint_every: $((steps / 20))" "hang_seconds: 20" "evaluate_every: $((steps / 3))"
    "mirror: copies")
  if [ "$1" = sparse ]; then write_recipe "${keys[@]}"; else write_survey_recipe "$1" "${keys[@]}"; fi
}
RANDOM=$seed
echo "random seed $seed"

exec {idle}<> <(:) # never has input: lets nap wait without starting a process
nap() { local of; printf -v of %03d "$1"; read -r -t "0.$of" <&"$idle" || true; } # nap MILLISECONDS, fewer than 1000
milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
began=$(milliseconds)
alive() { kill -0 "$1" 2>/dev/null; }
start() { # start RANKS RUN: in the background; $pid is mpirun, or the only rank
  local resume
  resume=$(resume_of "$2")
  [ -n "$resume" ] || resume=$(resume_of "copies/$2")
  [ -z "$resume" ] || resumed=$((resumed + 1))
  touch started
  # shellcheck disable=SC2086
  if [ "$1" = 1 ]; then
    "$longstride" train recipe.yaml --device "$device" --run "$2" $resume >job.log 2>&1 &
  else
    mpirun --bind-to none -n "$1" "$longstride" train recipe.yaml --device "$device" --run "$2" $resume >job.log 2>&1 &
  fi
  pid=$!
}
gone() { # gone PID...: all of them, within 30 s
  local p end=$(($(milliseconds) + 30000))
  for p in "$@"; do
    while alive "$p" && [[ "$(cat "/proc/$p/stat" 2>/dev/null)" != *") Z "* ]]; do
      [ "$(milliseconds)" -lt "$end" ] || return 1
      nap 20
    done
  done
}
saving_now() { # a checkpoint of RUN, or its copy, is being written, or was when this job was killed; not an earlier one
  local folder
  for folder in {,copies/}"$1"/checkpoints/.tmp-step-*; do
    if [ "$folder" -nt started ]; then return; fi
  done
  return 1
}
# Lets the job run until a random moment within the next MS, or until it saves; fails if it ends before that.
await_moment() { # await_moment MS RUN saving|any
  local passed=$((RANDOM % 3)) end=$(($(milliseconds) + (RANDOM * 32768 + RANDOM) % $1)) # passed: checkpoints to let pass
  if [ "$3" = any ]; then
    while alive "$pid" && [ "$(milliseconds)" -lt "$end" ]; do nap 5; done
    alive "$pid"
    return
  fi
  while alive "$pid"; do
    nap 1
    saving_now "$2" || continue
    if [ "$passed" = 0 ]; then nap $((RANDOM % 12)); return 0; fi
    while alive "$pid" && saving_now "$2"; do nap 1; done
    passed=$((passed - 1))
  done
  return 1
}
kill_job() { # kill_job RANKS: fails if the job had already ended normally; all its processes end
  local way=$((RANDOM % 3)) which=$RANDOM code=0 ranks
  [ "$way" = 1 ] || kill -STOP "$pid" 2>/dev/null || true # it starts no more ranks
  mapfile -t ranks < <(children_of "$pid")
  if [ "$way" = 1 ] && [ "${#ranks[@]}" -gt 0 ]; then
    kill -9 "${ranks[which % ${#ranks[@]}]}" 2>/dev/null || true
  elif [ "$way" = 2 ]; then
    kill -9 "$pid" 2>/dev/null || true
  else
    kill -9 "$pid" "${ranks[@]}" 2>/dev/null || true
  fi
  gone "$pid" "${ranks[@]}" 2>/dev/null || { cat job.log; fail "the job outlives the kill (way $way) by more than 30 s"; }
  { wait "$pid" || code=$?; } 2>/dev/null
  pid=
  rm -rf "${shared:?}"/* "${TMPDIR:?}"/*
  [ "$code" != 0 ]
}
finish() { # finish RANKS RUN: a run that has reached its end
  local code=0
  [ -z "$pid" ] || wait "$pid" || code=$? # kill_job has waited for one that ended just before the kill
  pid=
  [ "$code" = 0 ] || { cat job.log; fail "$2 at $1 ranks ended with $code by itself, after $done_kills kills"; }
  same_bits "whole$1" "$2" "$steps"
  # A kill between the last checkpoint and its copy leaves nothing to resume that would copy it.
  [ "$(last_checkpoint "copies/$2")" != "$steps" ] || same_bits "whole$1" "copies/$2" "$steps"
  python3 "$here/figures.py" "whole$1" >expected
  python3 "$here/figures.py" "$2" | diff expected - || fail "figures of whole$1 and $2 differ"
  rm -rf "$2" "copies/$2"
  equal=$((equal + 1))
}

kill_and_resume() { # kill_and_resume MODEL RANKS KILLS
  local model=$1 n=$2 wanted=$3 run=run$2.0 aim took
  done_kills=0 while_saving=0 resumed=0 lost=0 equal=0
  write_recipe_of "$model"
  rm -rf "whole$n" "copies/whole$n"
  took=$(milliseconds)
  start "$n" "whole$n"
  wait "$pid" || { cat job.log; fail "training at $n ranks"; }
  took=$(($(milliseconds) - took))
  while [ "$done_kills" -lt "$wanted" ]; do
    [ "$(milliseconds)" -lt $((began + seconds * 1000)) ] ||
      fail "$seconds s are over, after $done_kills kills of $wanted at $n ranks"
    aim=any
    [ $((2 * while_saving)) -gt "$done_kills" ] || aim=saving
    start "$n" "$run"
    if await_moment $((took * 3 / 4)) "$run" "$aim" && kill_job "$n"; then
      done_kills=$((done_kills + 1))
      if saving_now "$run"; then while_saving=$((while_saving + 1)); fi
      # A start or resume that is refused does not count as a kill.
      ! grep -a '^longstride: ' job.log | grep -a -v 'has ended without a word' || { cat job.log; fail "$run does not start"; }
      if [ $((done_kills % 4)) = 0 ] && [ "$(last_checkpoint "copies/$run")" != 0 ]; then
        rm -rf "$run/checkpoints"
        lost=$((lost + 1))
      fi
    else
      finish "$n" "$run"
      run=run$n.$equal
    fi
  done
  start "$n" "$run"
  finish "$n" "$run"
  printf '| %-17s | %5s | %5s | %12s | %7s | %11s | %11s |\n' "$model" "$n" "$done_kills" "$while_saving" "$resumed" \
    "$lost" "$equal of $equal"
}

echo "| model             | ranks | kills | while saving | resumed | from mirror | runs equal  |"
left=$kills parts=$(($(wc -w <<<"$counts") * $(wc -w <<<"$models")))
for model in $models; do
  for n in $counts; do
    kill_and_resume "$model" "$n" $((left / parts))
    left=$((left - done_kills)) parts=$((parts - 1))
  done
done
echo "kills: passed after $((($(milliseconds) - began) / 1000)) s"
