#!/usr/bin/env bash
# queue.sh with commands that need no GPU: each runs once, on one of the GPUs allowed, with the caller's environment,
# and never two at once on the same GPU; commands that fail, or would end too late, are reported and set the exit code.
set -euo pipefail
queue=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)/queue.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "queue_test.sh: $1" >&2; exit 1; }

export work gpus=a seconds=b devices=c
hold() { # occupies a GPU for a while
  mkdir "$work/held.$CUDA_VISIBLE_DEVICES" || touch "$work/twice"
  sleep 0.2
  rmdir "$work/held.$CUDA_VISIBLE_DEVICES"
  echo "$1 $CUDA_VISIBLE_DEVICES $gpus $seconds $devices" >>"$work/ran"
}
export -f hold
for i in 1 2 3 4 5; do echo "1 hold $i"; done | CUDA_VISIBLE_DEVICES=5,7 "$queue" >"$work/said" || fail "fails: $(cat "$work/said")"
[ ! -e "$work/twice" ] || fail "two commands on one GPU"
[ "$(cut -d' ' -f1 "$work/ran" | sort | tr '\n' ' ')" = "1 2 3 4 5 " ] || fail "ran: $(cat "$work/ran")"
[ "$(cut -d' ' -f2- "$work/ran" | sort -u | tr '\n' ';')" = "5 a b c;7 a b c;" ] || fail "ran: $(cat "$work/ran")"

unset CUDA_VISIBLE_DEVICES
printf '%s\n' '1 true' '1 exit 3' '1 true' | "$queue" --gpus 2 >"$work/said" && fail "a command's failure does not set the exit code"
[ "$(grep -c 'exit code 0' "$work/said") $(grep -c 'exit code 3' "$work/said")" = "2 1" ] || fail "said: $(cat "$work/said")"
printf '%s\n' '99 false' '1 true' | "$queue" --gpus 1 --seconds 9 >"$work/said" && fail "a command left out does not set the exit code"
grep -q 'exit code 0: true' "$work/said" && grep -q 'left out: false' "$work/said" || fail "said: $(cat "$work/said")"
code=0
"$queue" --what 2>"$work/said" || code=$?
[ $code = 2 ] && grep -q -- --what "$work/said" || fail "an unknown option: $code, $(cat "$work/said")"
