#!/usr/bin/env bash
# Runs commands on the GPUs of this host, one at a time on each. A line of standard input has the seconds that a command
# is expected to take and the command, for bash, which finds its GPU in CUDA_VISIBLE_DEVICES. If that is set for this
# script, it lists the GPUs to use: CUDA_VISIBLE_DEVICES=4,5,6,7 tests/gpu/scripts/queue.sh <LINES
#
#   tests/gpu/scripts/queue.sh [--gpus 4] [--seconds 1500] <LINES
#
# --gpus: how many to use; default: all. --seconds: leaves out a command that is expected to end later, but not shorter
# ones after it. Prints when each command began and ended, with its exit code. Exits with 1 if any failed or was left
# out.
set -uo pipefail
# Commands get the caller's environment unchanged, so this script's own variables have names that do not clash.
queue_gpus="" queue_seconds=""
while [ $# -gt 0 ]; do
  case "$1" in
    --gpus) queue_gpus=$2 ;;
    --seconds) queue_seconds=$2 ;;
    *) echo "queue.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -ra queue_devices <<<"$CUDA_VISIBLE_DEVICES"
else
  mapfile -t queue_devices < <(seq 0 $((${queue_gpus:-$(nvidia-smi -L 2>/dev/null | wc -l)} - 1)))
fi
queue_devices=("${queue_devices[@]:0:${queue_gpus:-${#queue_devices[@]}}}")
[ ${#queue_devices[@]} -gt 0 ] || { echo "queue.sh: there is no GPU here; give a number with --gpus to run anyway" >&2; exit 2; }
queue_work=$(mktemp -d)
trap 'rm -rf "$queue_work"' EXIT
grep -E '^[0-9]+ ' >"$queue_work/lines"

take() { # prints the first line that still fits and takes it out of the list
  (
    flock 9
    awk -v left="$((${queue_seconds:-1000000000} - SECONDS))" -v rest="$queue_work/rest" \
      'taken == "" && $1 <= left { taken = $0; next } { print > rest } END { print taken }' "$queue_work/lines"
    touch "$queue_work/rest"
    mv "$queue_work/rest" "$queue_work/lines"
  ) 9>"$queue_work/lock"
}
worker() { # GPU
  local line began code
  while line=$(take) && [ -n "$line" ]; do
    began=$SECONDS
    echo "$SECONDS s: GPU $1 begins: ${line#* }"
    CUDA_VISIBLE_DEVICES=$1 bash -c "${line#* }" </dev/null
    code=$?
    echo "$SECONDS s: GPU $1 ended after $((SECONDS - began)) s with exit code $code: ${line#* }"
    [ $code -eq 0 ] || touch "$queue_work/failed"
  done
}
for gpu in "${queue_devices[@]}"; do worker "$gpu" & done
wait
sed 's/^[0-9]* /left out: /' "$queue_work/lines"
[ ! -e "$queue_work/failed" ] && [ ! -s "$queue_work/lines" ]
