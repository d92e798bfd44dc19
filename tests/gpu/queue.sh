#!/usr/bin/env bash
# Runs commands on the GPUs of this host, on each one at a time. A line of standard input: the seconds that a command is
# expected to take, and the command, for bash; it finds its GPU in CUDA_VISIBLE_DEVICES. Where that is set for this script,
# it says which GPUs there are: CUDA_VISIBLE_DEVICES=4,5,6,7 tests/gpu/queue.sh <LINES
#
#   tests/gpu/queue.sh [--gpus 4] [--seconds 1500] <LINES
#
# --gpus: how many; default: all there are. --seconds: a command that is expected to end later is left out, shorter ones
# after it are not. Says when what began and ended, and with which exit code. Exits with 1 when one failed or was left out.
set -uo pipefail
gpus="" seconds=""
while [ $# -gt 0 ]; do
  case "$1" in
    --gpus) gpus=$2 ;;
    --seconds) seconds=$2 ;;
    *) echo "queue.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
else
  mapfile -t devices < <(seq 0 $((${gpus:-$(nvidia-smi -L 2>/dev/null | wc -l)} - 1)))
fi
devices=("${devices[@]:0:${gpus:-${#devices[@]}}}")
[ ${#devices[@]} -gt 0 ] || { echo "queue.sh: there is no GPU here; --gpus says how many to act for" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -E '^[0-9]+ ' >"$work/lines"

take() { # prints the first line that still fits and takes it out of the list
  (
    flock 9
    awk -v left="$((${seconds:-1000000000} - SECONDS))" -v rest="$work/rest" \
      'taken == "" && $1 <= left { taken = $0; next } { print > rest } END { print taken }' "$work/lines"
    touch "$work/rest"
    mv "$work/rest" "$work/lines"
  ) 9>"$work/lock"
}
worker() { # GPU
  local line began code
  while line=$(take) && [ -n "$line" ]; do
    began=$SECONDS
    echo "$SECONDS s: GPU $1 begins: ${line#* }"
    CUDA_VISIBLE_DEVICES=$1 bash -c "${line#* }" </dev/null
    code=$?
    echo "$SECONDS s: GPU $1 ended after $((SECONDS - began)) s with exit code $code: ${line#* }"
    [ $code -eq 0 ] || touch "$work/failed"
  done
}
for gpu in "${devices[@]}"; do worker "$gpu" & done
wait
sed 's/^[0-9]* /left out: /' "$work/lines"
[ ! -e "$work/failed" ] && [ ! -s "$work/lines" ]
