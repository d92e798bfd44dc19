#!/usr/bin/env bash
# The completion in bash offers the values of an option, and runs nothing that a path contains.
#   completion.sh COMPLETION LONGSTRIDE
set -eu
source "$1"
command=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

complete_after() {
  COMP_WORDS=("$command" "$@" "") COMP_CWORD=$(($# + 1)) COMPREPLY=()
  _longstride "$command" || true
}

complete_after eval run --split
[ "${COMPREPLY[*]}" = "train valid test" ] || { echo "after --split: ${COMPREPLY[*]}"; exit 1; }
complete_after eval "--split/touch made #/e;#"
[ ! -e made ] || { echo "a path was run"; exit 1; }
