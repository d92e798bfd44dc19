#!/usr/bin/env bash
# random_shapes.py with programs that need no GPU: one passes that takes equally long for equal work; one does not that
# takes five times as long for strides outside the paper, unless its plan says so.
set -euo pipefail
random_shapes=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)/random_shapes.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "random_shapes_test.sh: $1" >&2; exit 1; }

program() { # name, milliseconds of other strides, what plan says
  cat >"$work/$1" <<EOF
#!/bin/sh
[ "\$1" = plan ] && [ -f "\$2" ] && echo "$3" && exit
[ "\$1 \$2" = "bench attention" ] && [ -f "\$3" ] || exit 2
case " \$* " in
  *" model.attention.stride=128 "* | *" model.attention.stride=512 "* | *" model.attention.stride=96 "*) ms=1 ;;
  *) ms=$2 ;;
esac
echo "{\"lines\": [{\"name\": \"forward\", \"ms\": 9}, {\"name\": \"forward+backward\", \"ms\": \$ms}]}"
EOF
  chmod +x "$work/$1"
}
program even 1 ""
program steep 5 "memory  1 GiB"
program frank 5 "slow    this shape takes 5 times as long"

# With as much work in every measurement, equal times are equal rates, up to the rounding of the batch.
"$random_shapes" "$work/even" --count 12 --tiles 1e9 --most 1.01 >"$work/said" || fail "refuses equal rates: $(cat "$work/said")"
grep -q '^12 shapes of seed 1, 0 above 1.01 times their work' "$work/said" || fail "says: $(cat "$work/said")"
if "$random_shapes" "$work/steep" --count 12 --tiles 1e9 >"$work/said"; then fail "accepts 5 times the work"; fi
grep -q '| 5.00 | \*\*says nothing\*\* |' "$work/said" || fail "says: $(cat "$work/said")"
"$random_shapes" "$work/frank" --count 12 --tiles 1e9 >"$work/said" || fail "refuses what plan says: $(cat "$work/said")"
grep -q '| 5.00 | slow |' "$work/said" || fail "says: $(cat "$work/said")"
grep -Eq '^12 shapes of seed 1, ([0-9]+) above 1.3 times their work, of which plan calls \1 slow' "$work/said" ||
  fail "says: $(cat "$work/said")"
"$random_shapes" "$work/even" --count 12 --tiles 1e9 >"$work/again" || fail "refuses equal rates the second time"
diff <(cut -d '|' -f 2 "$work/said" | head -14) <(cut -d '|' -f 2 "$work/again" | head -14) || fail "draws other shapes"

"$random_shapes" "$work/even" --shape "fixed 100 25 64 64 12800" --shape "local 128 0 112 128 12800 34" --tiles 1e9 \
  --most 1.01 >"$work/said" || fail "refuses given shapes of equal rates: $(cat "$work/said")"
grep -q '^| fixed 100, summary 25, heads 64/64, n 12800 |' "$work/said" || fail "times another shape: $(cat "$work/said")"
grep -q '^| local 34, heads 112/128, n 12800 |' "$work/said" || fail "times another window: $(cat "$work/said")"
grep -q '^2 shapes given, 0 above 1.01 times their work' "$work/said" || fail "says: $(cat "$work/said")"

refuses() { # sentence, arguments
  local status=0
  "$random_shapes" "${@:2}" >"$work/out" 2>"$work/said" || status=$?
  [ "$status" = 2 ] && grep -qF -- "$1" "$work/said" || fail "ends with $status after '${*:2}': $(cat "$work/said")"
}
refuses "$work/none does not run: No such file or directory" "$work/none"
refuses "true does not print the times of \`bench attention\`" "$(command -v true)"
refuses "argument --count: 0 is not a whole number of at least 1" "$work/even" --count 0
refuses "argument --shape: 'fixed 100' is not a shape" "$work/even" --shape "fixed 100"
refuses "argument --shape: 'fixed 100 0 64 192 128' has a size" "$work/even" --shape "fixed 100 0 64 192 128"
refuses "argument --most: nan is not a number above 0" "$work/even" --most nan
refuses "argument --tiles: -5 is not a number above 0" "$work/even" --tiles -5
refuses "argument --seconds: inf is not a number above 0" "$work/even" --seconds inf
