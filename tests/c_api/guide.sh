#!/usr/bin/env bash
# The library is installed with its header, and the C program of the guide works with them.
#
#   guide.sh BUILD PAGE
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >"$prefix/log" || { cat "$prefix/log" >&2; exit 1; }
awk '/^<!-- attention.c -->$/ { on = 1; next } on && /^[^ ]/ { exit } on { print substr($0, 5) }' "$2" \
  >"$prefix/attention.c"
library=$(dirname "$(find "$prefix" -name liblongstride_attention.so)")
cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$prefix/attention.c" -I "$prefix/include" -L "$library" \
  -Wl,-rpath,"$library" -llongstride_attention -o "$prefix/attention"
[ "$("$prefix/attention")" = 1.000 ]
