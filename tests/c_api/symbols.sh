#!/usr/bin/env bash
# A library exports the functions of its headers, with the version of their interface, and nothing else.
#
#   symbols.sh LIBRARY HEADER ...
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort)
shift
declared=$(grep -oh 'longstride_[a-z_]*(' "$@" | tr -d '(' | sort -u |
  sed 's/$/@@LONGSTRIDE_0/')
if [ -z "$declared" ] || [ "$exported" != "$declared" ]; then
  printf 'exported:\n%s\ndeclared:\n%s\n' "$exported" "$declared" >&2
  exit 1
fi
