#!/usr/bin/env bash
# What `cmake --install` installs works by itself: the program, its completion, a recipe, a page of the documentation,
# and find_package. On a processor that is too old the program says so; this is tried if qemu-x86_64 is installed.
#
#   install.sh BUILD
set -euo pipefail
consumer=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../packages/consumer" && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >"$prefix/log" || { cat "$prefix/log" >&2; exit 1; }
cd "$prefix"
grep -qx 'longstride [0-9]*\.[0-9]*\.[0-9]*' <(bin/longstride --version)
bin/longstride plan share/longstride/recipes/quickstart/text.yaml --device cpu >plan
grep -q quickstart-text plan
bin/longstride plan share/longstride/recipes/beyond/text-8min.yaml --device cpu >plan
(cd / && "$prefix/bin/longstride" plan beyond/text-8min --device cpu) >plan  # found by name, whatever the directory
grep -q '^recipe .*text-8min' plan
[ -s share/doc/longstride/README.md ] && [ -n "$(find share/doc/longstride/docs -name '*.md')" ]
[ -x share/longstride/scripts/slurm.sbatch ]
grep -q '^.SS longstride prepare bytes' share/man/man1/longstride.1
! command -v groff >/dev/null || [ -z "$(groff -man -Tutf8 -ww share/man/man1/longstride.1 2>&1 >/dev/null)" ]
[ -x share/longstride/scripts/follow_metrics.py ] && [ -x share/longstride/scripts/proteins.py ]
python3 share/longstride/scripts/proteins.py --help >help && grep -q metastudent-data help  # finds its module

cmake -S "$consumer" -B consumer -DCMAKE_PREFIX_PATH="$prefix" >log || { cat log >&2; exit 1; }
cmake --build consumer >log || { cat log >&2; exit 1; }
ctest --test-dir consumer >log && grep -q 'out of 2' log || { cat log >&2; exit 1; }

complete_words() { # complete_words WORD...: what bash would offer for the last one
  COMP_WORDS=(longstride "$@") COMP_CWORD=$# COMPREPLY=()
  _longstride "${called:-bin/longstride}"
  echo "${COMPREPLY[*]}"
}
source share/bash-completion/completions/longstride
expect() { [ "$1" = "$2" ] || { echo "install.sh: completed to '$1' instead of '$2'" >&2; exit 1; }; }
expect "$(complete_words prep)" prepare
expect "$(complete_words prepare by)" bytes
expect "$(complete_words prepare bytes --in)" --input
expect "$(complete_words eval RUN --split te)" test
expect "$(complete_words eval RUN --split test --spl)" --split
expect "$(complete_words eval RUN --split = te)" test
expect "$(complete_words eval RUN --split =)" "train valid test"
expect "$(complete_words no-such-command)" ""
expect "$(HOME=$PWD called='~/bin/longstride' complete_words prep)" prepare
alias longstride="$PWD/bin/longstride"
expect "$(called=longstride complete_words prep)" prepare

# Not with a sanitizer, which reserves more addresses than qemu has.
if command -v qemu-x86_64 >/dev/null && [ "$(uname -m)" = x86_64 ] && ! grep -qE '__[at]san_init' bin/longstride; then
  code=0
  qemu-x86_64 -cpu Nehalem bin/longstride --version >out 2>err || code=$?
  [ "$code" -eq 2 ] && [ ! -s out ] && grep -q '^longstride: this processor lacks .*, which this build needs; ' err ||
    { echo "install.sh: on an old processor: exit code $code, $(cat err)" >&2; exit 1; }
fi
