#!/usr/bin/env bash
# The completion in bash offers the values of an option, keys of a recipe, runs and checkpoints, and runs nothing that a
# path contains.
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

expect() {  # WANTED words before the cursor ...
  local wanted=$1
  shift
  complete_after "$@"
  [[ " ${COMPREPLY[*]} " == *" $wanted "* ]] || { echo "after $*: ${COMPREPLY[*]}, without $wanted"; exit 1; }
}
mkdir -p runs/text/checkpoints/step-00000500 runs/text-sweep/lr=1/checkpoints
touch runs/text/environment.json runs/text-sweep/lr=1/environment.json
expect runs/text eval
expect runs/text-sweep/lr=1 report
expect 500 eval runs/text --checkpoint
expect best sample runs/text --checkpoint
cat >r.yaml <<'RECIPE'
name: small
data: {kind: bytes, path: x.h5, context: 64}
model: {kind: sparse_transformer, layers: 1, width: 16, heads: 2, attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2}}
train: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}
RECIPE
expect train.lr= train r.yaml --set
expect model.layers= train r.yaml --sweep
