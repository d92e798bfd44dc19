#!/usr/bin/env bash
# Training on two hosts with a GPU each, joined by TCP: two network namespaces of this machine, which share its GPU if it
# has only one. Needs root and iproute2.
#
#   tests/gpu/scripts/two_hosts.sh BUILD [PART...]   BUILD: a build folder. Parts: doctor, same, cut, speed; default: all
#
# doctor   `longstride doctor` on both hosts finds no problem with MPI and NCCL between them
# same     losses equal those of one GPU up to rounding, and a second run on the two hosts has the same bits
# cut      the cable is cut in mid-step: one sentence, the job ends in time, and resuming gives the bits of a whole run
# speed    tokens/s of one GPU and of two hosts, with the exchange after and during the backward pass; not on a GPU that
#          both hosts share, where it would say nothing
# DEVICE=cpu tries the script without a GPU. Every program runs under a time limit; `cut` alone takes at most two minutes.
# Prints the number of failures at the end; exits with 1 if there are any.
set -uo pipefail
[ -d "${1:-}" ] || { echo "two_hosts.sh: needs a build folder; see the top of the file" >&2; exit 2; }
build=$(CDPATH= cd -- "$1" && pwd)
shift
parts=${*:-doctor same cut speed}
longstride=$build/longstride
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
here=$root/tests/distributed
device=${DEVICE:-gpu}
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
failures=0
work=$(mktemp -d)
cd "$work" || exit 2
export OMP_NUM_THREADS=4 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 NCCL_SOCKET_IFNAME=eth0
source "$here/imitated_hosts.sh"
trap 'remove_hosts; rm -rf "$work"' EXIT
can_make_hosts || { echo "two_hosts.sh: network namespaces need root and the command ip (package iproute2)" >&2; exit 2; }
source "$here/run_support.sh"
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

command_of_host() { # longstride as a rank starts it: host K has GPU K-1 where there are two
  cat >rank.sh <<R
#!/usr/bin/env bash
[ $gpus -lt 2 ] || export CUDA_VISIBLE_DEVICES=\$((\${OMPI_COMM_WORLD_RANK:-0} % 2))
exec $longstride "\$@"
R
  chmod +x rank.sh
}
# The limit is on mpirun: a rank must be its child, to end it when the daemon of the other host is cut off.
# shellcheck disable=SC2034
on_two() { (hosts_limit=$1; on_hosts 1 "$work/rank.sh" "${@:2}"); }
train_on_two() { # train_on_two RUN [options]
  on_two 100 train recipe.yaml --device "$device" --run "$@" >train.log 2>&1 || { tail -n 15 train.log; fail "train on two hosts: $*"; }
}
alone() { # alone RUN [options]
  timeout 60 "$longstride" train recipe.yaml --device "$device" --run "$@" >train.log 2>&1 || { tail -n 15 train.log; fail "train alone: $*"; }
}

check_places() {
  (on_hosts 1 hostname) >names.log 2>&1
  [ "$(grep '^node[0-9]$' names.log | sort -u)" = $'node1\nnode2' ] && return
  cat names.log
  fail "the ranks are not on two hosts"
  (on_hosts 1 --display-allocation --display-map hostname) 2>&1 | head -n 40
}

run_doctor() {
  on_two 120 doctor --directory "$work" >doctor.log 2>&1 || fail "doctor: exit code $?"
  grep -E 'NCCL|MPI|GPU|PROBLEM|share a GPU' doctor.log
}

run_same() {
  write_recipe "steps: 20" "checkpoint_every: 5" "hang_seconds: 20"
  alone alone
  train_on_two two
  train_on_two again
  same_bits two again 20
  paste -d ' ' <(losses alone) <(losses two) |
    awk '{ d = $2 - $4; d = (d < 0 ? -d : d) / $2; if (d > m) m = d; n++ }
         END { printf "losses of one GPU and two hosts differ by at most %.2e of themselves, over %d steps\n", m, n
               exit !(n == 20 && m < 2e-3) }' || fail "losses"
}

# The cut comes first, so that its outcome is known even if the time is too short for the rest.
run_cut() {
  local steps=24 limit=35  # two processes take turns on a GPU that they share, which makes steps slow
  [ "$gpus" -lt 2 ] || steps=400
  [ "$device" = gpu ] || steps=60
  write_recipe "steps: $steps" "checkpoint_every: 4" "hang_seconds: 4"
  SECONDS=0
  (on_two $((limit + 15)) train recipe.yaml --device "$device" --run cut) >job.log 2>&1 &
  local pid=$! began code=0
  until grep -qs '"step":8,' cut/metrics.jsonl; do
    if [ $SECONDS -ge $limit ] || ! kill -0 $pid 2>/dev/null; then
      tail -n 15 job.log
      fail "no step 8 after $SECONDS s"
      kill $pid 2>/dev/null
      return
    fi
    sleep 0.01
  done
  echo "step 8 after $SECONDS s; the cable is cut"
  cut_host 2
  began=$SECONDS
  wait $pid || code=$?
  echo "after the cut: exit code $code in $((SECONDS - began)) s"
  [ $code != 0 ] && [ $((SECONDS - began)) -le 12 ] || fail "the job did not end in time"
  grep -a '^longstride: ' job.log
  [ "$(grep -a -c '^longstride: ' job.log)" = 1 ] || { tail -n 20 job.log; fail "there is not one sentence"; }
  for p in $(processes_of_host 2); do kill -9 "$p" 2>/dev/null || true; done
  join_host 2
  compare_with_whole $steps $limit
}
compare_with_whole() { # STEPS LIMIT: resumes the run that was cut, and makes one that never was
  local run
  for run in "cut --resume" whole; do
    SECONDS=0
    # shellcheck disable=SC2086  # the options of a run
    on_two "$2" train recipe.yaml --device "$device" --run $run >train.log 2>&1 ||
      { fail "train on two hosts: $run, exit code $? (124: out of time) after $SECONDS s"; tail -n 15 train.log; return; }
    echo "trained in $SECONDS s: $run"
  done
  same_bits whole cut "$1" && [ -d "whole/checkpoints/step-$(printf %08d "$1")" ] && echo "the same bits as without the cut"
}

run_speed() {
  local policy
  if [ "$gpus" -lt 2 ]; then echo "not measured: the hosts share a GPU"; return; fi
  context=4096 write_recipe "steps: 60" "checkpoint_every: 1000"
  sed -i 's/width: 64/width: 512/; s/layers: 2/layers: 8/; s/heads: 4/heads: 8/; s/log_every: 1,/log_every: 10,/' recipe.yaml
  alone alone_speed
  echo "one GPU: $(speed_of alone_speed)"
  for policy in never always; do
    train_on_two "speed_$policy" --set parallel.overlap="$policy"
    echo "two hosts, overlap $policy: $(speed_of "speed_$policy")"
  done
}
speed_of() { grep -o '"tokens_per_second":[0-9.e+]*' "$1/metrics.jsonl" | tail -n 1; }

command_of_host
make_hosts 2
check_places
for part in $parts; do
  case "$part" in
    doctor | same | cut | speed) echo "== $part"; "run_$part" ;;
    *) fail "unknown part $part" ;;
  esac
done
echo "two_hosts.sh: $failures failures"
[ "$failures" = 0 ]
