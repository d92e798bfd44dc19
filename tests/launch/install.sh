#!/usr/bin/env bash
# What `cmake --install` installs works by itself: the program, a recipe, and a page of the documentation.
#
#   install.sh BUILD
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >"$prefix/log" || { cat "$prefix/log" >&2; exit 1; }
cd "$prefix"
grep -qx 'longstride [0-9]*\.[0-9]*\.[0-9]*' <(bin/longstride --version)
bin/longstride plan share/longstride/recipes/quickstart/text.yaml --device cpu >plan
grep -q quickstart-text plan
bin/longstride plan share/longstride/recipes/beyond/text-8min.yaml --device cpu >plan
[ -s share/doc/longstride/README.md ] && [ -n "$(find share/doc/longstride/docs -name '*.md')" ]
[ -x share/longstride/scripts/slurm.sbatch ]
[ -x share/longstride/scripts/follow_metrics.py ]
