#!/usr/bin/env bash
# The scripts that print the tables of the peers' comparisons: what they print, and how they refuse wrong arguments.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tables_test.sh: $1" >&2; exit 1; }

refuses() { # sentence, script, arguments
  local status=0
  python3 "$here/$2" "${@:3}" >"$work/out" 2>"$work/said" || status=$?
  [ "$status" = 2 ] && grep -qF -- "$1" "$work/said" && ! grep -q Traceback "$work/said" ||
    fail "$2 ends with $status after '${*:3}': $(cat "$work/said")"
}
prints() { # line, script, arguments
  python3 "$here/$2" "${@:3}" >"$work/out" || fail "$2 fails after '${*:3}'"
  grep -qF -- "$1" "$work/out" || fail "$2 prints $(cat "$work/out")"
}

for script in compare_cpu.py compare_gpu.py short_runs.py; do
  refuses "the following arguments are required" "$script"
  prints "usage: $script" "$script" --help
done

refuses "$work/none: must be a file with what train_cpu_torch.py printed" compare_cpu.py r.yaml {} {} "$work/none"
refuses "argument before: invalid loads value: 'x'" compare_cpu.py r.yaml x {} "$work/none"
ours='{"median": 300, "fastest": 400, "cpu_seconds_per_step": 2}'
echo '{"fastest": {"seconds_per_step": 1, "tokens_per_second": 100, "form": "dense", "compiled": false,
  "fastest_step": 0.5, "cpu_seconds_per_step": 4}}' | tr -d '\n' >"$work/peer"
prints '"ratio_of_medians": 3.0, "ratio_of_fastest_steps": 2.0' compare_cpu.py r.yaml "$ours" "$ours" "$work/peer"

refuses "$work/order: cannot be read: No such file or directory; give a folder of compare_gpu.sh" compare_gpu.py "$work"
echo "small block" >"$work/order"
echo "out of memory" >"$work/small.block.ours"
cp "$work/small.block.ours" "$work/small.block.peer"
touch "$work/small.block.ours.error" "$work/small.block.peer.error"
prints "| small | block | out of memory | out of memory |" compare_gpu.py "$work"

refuses "$work/rows: cannot be read: No such file or directory" short_runs.py "$work" 60 "$work/rows" 1
mkdir -p "$work/seed-1/text"
echo text >"$work/rows"
echo '{"rows": [{"bits_per_byte": 1.5, "tokens": 2000}]}' >"$work/seed-1/text/table1.json"
prints "| text | 1.5000 | 2,000 | not run | not run |" short_runs.py "$work" 60 "$work/rows" 1
