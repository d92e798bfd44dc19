#!/usr/bin/env bash
# same_steps.sh with programs that need no GPU: equal ones pass; a slower one, or another loss after as many steps, does
# not.
set -euo pipefail
same_steps=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)/same_steps.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "same_steps_test.sh: $1" >&2; exit 1; }

program() { # name, milliseconds, loss, steps
  cat >"$work/$1" <<EOF
#!/bin/sh
[ "\$1 \$2" = "bench step" ] && [ -f "\$3" ] || exit 2
echo '{"fastest": $2, "planned_bytes": 5, "used_bytes": 5, "loss": $3, "steps": $4}'
EOF
  chmod +x "$work/$1"
}
program base 100 5.5 9
program equal 100.9 5.5 9
program slow 101.1 5.5 9
program other 100 5.6 9
program fast 90 5.4 10

"$same_steps" "$work/base" "$work/equal" >"$work/said" || fail "refuses 0.9% more: $(cat "$work/said")"
[ "$(grep -c 'ratio 1.0090; same bytes and loss' "$work/said")" = 10 ] || fail "says: $(cat "$work/said")"
if "$same_steps" "$work/base" "$work/slow" >"$work/said"; then fail "accepts 1.1% more: $(cat "$work/said")"; fi
if "$same_steps" "$work/base" "$work/other" >"$work/said"; then fail "accepts another loss: $(cat "$work/said")"; fi
grep -q 'ratio 1.0000; loss differ' "$work/said" || fail "says: $(cat "$work/said")"
"$same_steps" "$work/base" "$work/fast" >"$work/said" || fail "refuses a faster program: $(cat "$work/said")"
said='ratio 0.9000; same bytes; no loss compared after 9 and 10 steps'
grep -q "$said" "$work/said" || fail "says: $(cat "$work/said")"
if "$same_steps" "$work/base" "$work/none" 2>"$work/said"; then fail "runs without a program"; fi
grep -q 'no program at' "$work/said" || fail "says: $(cat "$work/said")"
