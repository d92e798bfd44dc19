#!/usr/bin/env bash
# Scripts that lack an argument say so in one sentence and end with 2.
set -euo pipefail
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
failures=0
for script in "$root"/launch/scripts/slurm.sbatch "$root"/tests/gpu/scripts/{curves,pytorch,same_steps,sanitize,several_gpus,two_hosts,verify}.sh; do
  code=0
  said=$(bash "$script" 2>&1) || code=$?
  [ "$code" = 2 ] && [[ $said == "${script##*/}: needs "*"; see the top of the file" ]] ||
    { echo "FAILED: $script ended with $code and said: $said"; failures=$((failures + 1)); }
done
[ "$failures" = 0 ]
