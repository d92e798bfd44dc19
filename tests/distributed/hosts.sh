#!/usr/bin/env bash
# Training over several hosts, which are network namespaces of this machine. Exits with 77 if it cannot create them.
#
#   hosts.sh LONGSTRIDE CASE      cases: same, cut
set -euo pipefail
longstride=$1
scenario=$2
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
cd "$work"
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
source "$here/imitated_hosts.sh"
cleanup() {
  remove_hosts
  rm -rf "$work"
}
trap cleanup EXIT
can_make_hosts || { echo "SKIPPED: network namespaces need root and the command ip (package iproute2)"; exit 77; }
source "$here/run_support.sh"
train_on_hosts() { # train_on_hosts RANKS_EACH RUN [options]
  local each=$1 run=$2; shift 2
  (on_hosts "$each" "$longstride" train recipe.yaml --run "$run" "$@") >train.log 2>&1 || { cat train.log; fail "train on hosts $run $*"; }
}
case $scenario in
  same)  # 4 ranks on 1, 2 and 4 hosts: the same bits, run after run
    write_recipe "steps: 20" "checkpoint_every: 5" "hang_seconds: 20"
    train 4 whole
    make_hosts 4
    hosts_count=2
    (on_hosts 2 hostname) >names.log 2>&1
    [ "$(grep '^node[0-9]$' names.log | sort -u)" = $'node1\nnode2' ] || { cat names.log; fail "ranks are not on two hosts"; }
    train_on_hosts 2 two
    train_on_hosts 2 two_again
    hosts_count=4
    (on_hosts 1 hostname) >names.log 2>&1
    [ "$(grep '^node[0-9]$' names.log | sort -u | wc -l)" = 4 ] || { cat names.log; fail "ranks are not on four hosts"; }
    train_on_hosts 1 four
    for run in two two_again four; do
      same_bits whole "$run" 20
      diff <(losses whole) <(losses "$run") || fail "losses of $run differ"
    done
    ;;
  cut)  # the network link of the second host, in the middle of training
    write_recipe "steps: 60" "checkpoint_every: 5" "hang_seconds: 4"
    train 4 whole
    make_hosts 2
    (on_hosts 2 "$longstride" train recipe.yaml --run cut) >job.log 2>&1 &
    pid=$!
    wait_for_step cut 12
    cut_host 2
    began=$(date +%s)
    code=0
    wait "$pid" || code=$?
    took=$(($(date +%s) - began))
    [ "$code" != 0 ] || { cat job.log; fail "the job ended with 0"; }
    [ "$took" -le 12 ] || { cat job.log; fail "the job took $took s to end"; }
    [ "$(grep -a -c '^longstride: ' job.log)" = 1 ] &&
      grep -a -q '^longstride: rank 2 (node2), rank 3 (node2) have not answered for [0-9]* s' job.log ||
      { cat job.log; fail "no message names the ranks that are cut off"; }
    for k in 1 2; do
      for p in $(processes_of_host "$k"); do
        [ "$(readlink "/proc/$p/exe")" != "$(realpath "$longstride")" ] || fail "a rank on host $k has outlived the job"
      done
    done
    for p in $(processes_of_host 2); do kill -9 "$p" 2>/dev/null || true; done  # Open MPI's daemon
    join_host 2
    train_on_hosts 2 cut --resume
    same_bits whole cut 60
    ;;
  *) fail "unknown case $scenario" ;;
esac
echo "$scenario: passed"
