#!/usr/bin/env bash
# Runs every command that writes on disks that may be too small: it succeeds, or exits with 2 and a sentence that names
# a file and the reason. A file under its final name is whole, nothing else is left, and an old file that was to be
# replaced is kept. Exits with 77 if no disk can be created (that needs root).
#
#   full_disk.sh LONGSTRIDE SIZES [SEED]     SIZES disks for every command, of random sizes drawn with SEED
set -euo pipefail
longstride=$1 sizes=$2 seed=${3:-1}
if [ -z "${FULL_DISK_INSIDE:-}" ]; then
  unshare -m mount -t tmpfs none /mnt 2>/dev/null || { echo "SKIPPED: disks of a chosen size need root"; exit 77; }
  FULL_DISK_INSIDE=1 exec unshare -m "${BASH_SOURCE[0]}" "$@"
fi
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
cd "$work"
mkdir disk
trap 'cd /; umount -q "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1
RANDOM=$seed
failures=0
L=$longstride

# Inputs of the commands, on a disk with room.
cat "$here"/*.cpp "$here"/*.sh >text.bin
mkdir pictures batches sounds
for i in 1 2 3 4 5 6; do
  cat >picture.yaml <<R
name: picture
data: {kind: bytes, path: none, context: 64}
model: {kind: sparse_transformer, layers: 1, width: 16, heads: 2, attention: {integration: merged, parts: [local], stride: $((i * 4))}}
train: {steps: 1, global_batch: 1, lr: 1.0e-3, warmup: 1}
R
  "$L" show pattern picture.yaml --positions 64 --scale 1 --output "pictures/$i.png" >/dev/null
  { printf 'RIFF\044\372\000\000WAVEfmt \020\000\000\000\001\000\001\000\300\135\000\000\200\273\000\000\002\000\020\000data\000\372\000\000'
    head -c 64000 < <(tail -c +$((i * 1000)) text.bin); } >"sounds/$i.wav"
done
head -c $((3073 * 60)) < <(yes 1234567890 | tr -d '\n' | tr '0-9' '\000-\011') >batches/data_batch_1.bin  # labels below 10
head -c $((3073 * 8)) batches/data_batch_1.bin >batches/test_batch.bin
head -c 3000 text.bin >small.bin
"$L" prepare bytes --input text.bin --output text.h5 >/dev/null
"$L" prepare bytes --input small.bin --output small.h5 >/dev/null
cat >r.yaml <<R
name: toy
data: {kind: bytes, path: $work/text.h5, context: 128}
model:
  kind: sparse_transformer
  layers: 1
  width: 32
  heads: 2
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 16, summary: 4}
train: {steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1, log_every: 1, checkpoint_every: 1, keep: 2, evaluate_windows: 2}
R
"$L" train r.yaml --run begun --set train.steps=2 >/dev/null 2>&1
"$L" sample begun --count 2 >/dev/null
"$L" attention begun --query 64 --output old_attention >/dev/null
"$L" attention begun >/dev/null

complain() { # complain WHAT
  failures=$((failures + 1))
  echo "FAILED: $name, a disk of $size KiB: $1"
  sed 's/^/    /' err | tail -n 4
}
kept_or_new() { # kept_or_new FILE OLD CHECK...: if the command failed, FILE equals OLD; otherwise it passes the check
  local file=$1 old=$2
  shift 2
  if [ "$code" != 0 ] && [ -e "$file" ]; then cmp -s "$file" "$old" || complain "$file was replaced"; return; fi
  [ -e "$file" ] || { [ "$code" != 0 ] || complain "$file is not there"; return; }
  "$@" "$file" >/dev/null 2>check || complain "$file is not whole: $(cat check)"
}
verified() { "$L" info "$1" --verify; }
is_page() { [ "$(tail -n 1 "$1")" = "</html>" ]; }
is_png() { [ "$(tail -c 8 "$1" | od -An -tx1)" = " 49 45 4e 44 ae 42 60 82" ]; }
ends_with_brace() { [ "$(tail -c 2 "$1")" = "}" ]; }
is_text() { [ "$(stat -c %s "$1")" = 128 ]; }
is_safetensors() { # as long as its header says
  local header all
  header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  all=$(tail -c +9 "$1" | head -c "$header" | grep -o '"data_offsets":\[[0-9]*,[0-9]*\]' | sed 's/.*,\([0-9]*\)]/\1/' | sort -n | tail -n 1)
  [ "$(stat -c %s "$1")" = $((8 + header + all)) ]
}
is_run() { # is_run RUN: its files can be read, and the checkpoints load
  local run=$1 step
  if [ -s "$run/metrics.jsonl" ]; then
    if grep -qv '^{.*}$' "$run/metrics.jsonl"; then complain "a line of metrics.jsonl is cut short"; fi
  fi
  [ ! -e "$run/environment.json" ] || ends_with_brace "$run/environment.json" || complain "environment.json is cut short"
  [ ! -e "$run/recipe.yaml" ] || "$L" plan "$run/recipe.yaml" >/dev/null 2>&1 || complain "recipe.yaml is not whole"
  step=$(ls "$run/checkpoints" 2>/dev/null | tail -n 1)
  [ -z "$step" ] || "$L" eval "$run" --windows 1 >/dev/null 2>check || complain "$step does not load: $(cat check)"
  [ "$code" != 0 ] || [ -n "$step" ] || complain "there is no checkpoint"
}

# The cases: what is on the disk before, what is run, and what must hold afterwards ($code is the exit code).
before_bytes() { cp small.h5 disk/x.h5; }
run_bytes() { "$L" prepare bytes --input text.bin --output disk/x.h5 --force; }
after_bytes() { kept_or_new disk/x.h5 small.h5 verified; }
run_images() { "$L" prepare images --input pictures --size 64 --split 0.5,0.25,0.25 --output disk/x.h5; }
after_images() { kept_or_new disk/x.h5 /dev/null verified; }
run_cifar10() { "$L" prepare cifar10 --input batches --output disk/x.h5; }
after_cifar10() { kept_or_new disk/x.h5 /dev/null verified; }
run_audio() { "$L" prepare audio --input sounds --rate 24000 --output disk/x.h5; }
after_audio() { kept_or_new disk/x.h5 /dev/null verified; }
run_train() { "$L" train r.yaml --run disk/run; }
after_train() { is_run disk/run; }
before_resume() { cp -r begun disk/run; }
run_resume() { "$L" train r.yaml --run disk/run --resume-changed; }
after_resume() {
  is_run disk/run
  ls disk/run/checkpoints | grep -q '^step-0000000[2-4]$' || complain "the checkpoint that it resumed from is gone"
}
before_sample() { mkdir disk/s; cp begun/samples/sample-000.txt disk/s; }
run_sample() { "$L" sample begun --count 8 --seed 3 --output disk/s --force; }
after_sample() { local file; for file in disk/s/*; do is_text "$file" || complain "$file is not whole"; done; }
before_export() { mkdir disk/e; echo old >disk/e/recipe.yaml; echo old >old; }
run_export() { "$L" export r.yaml --steps 4 --output disk/e --force; }
after_export() {
  local file
  for file in disk/e/*.safetensors; do [ ! -e "$file" ] || is_safetensors "$file" || complain "$file is not whole"; done
  cmp -s disk/e/recipe.yaml old || "$L" plan disk/e/recipe.yaml >/dev/null 2>&1 || complain "recipe.yaml is not whole"
}
run_new_export() { "$L" export begun --output disk/e; }
after_new_export() { [ -z "$(find disk -type d -empty)" ] || [ "$code" = 0 ] || [ ! -d disk/e ] || complain "an empty folder is left"; }
before_report() { [ -e old_page ] || "$L" report begun --output old_page >/dev/null; cp old_page disk/r.html; }
run_report() { "$L" report begun --output disk/r.html --force; }
after_report() { kept_or_new disk/r.html old_page is_page; }
before_show() { cp pictures/1.png disk/x.png; }
run_show() { "$L" show pattern r.yaml --positions 128 --scale 8 --query 100 --output disk/x.png --force; }
after_show() { kept_or_new disk/x.png pictures/1.png is_png; }
before_attention() { cp -r old_attention disk/a; }
run_attention() { "$L" attention begun --output disk/a --force; }
after_attention() {
  local file
  for file in disk/a/*.png; do is_png "$file" || complain "$file is not whole"; done
  ends_with_brace disk/a/attention.json || complain "attention.json is not whole"
}
run_reproduce() {
  "$L" reproduce table1 --scale smoke --row cifar10-strided --windows 1 --recipes "$here/../../../recipes" \
    --set train.steps=2 --set train.warmup=1 --set model.layers=1 --output disk/rep
}
after_reproduce() {
  local file
  for file in disk/rep/data/*.h5; do [ ! -e "$file" ] || verified "$file" >/dev/null 2>&1 || complain "$file is not whole"; done
  for file in disk/rep/*/recipe.yaml; do [ ! -e "$file" ] || "$L" plan "$file" >/dev/null 2>&1 || complain "$file is not whole"; done
  [ ! -e disk/rep/table1.json ] || ends_with_brace disk/rep/table1.json || complain "table1.json is not whole"
}

on_disk() { # on_disk KIB: the case $name on a disk of this size; skipped if the files that it starts with do not fit
  size=$1
  mount -t tmpfs -o size="${size}k" none disk
  if ! declare -F "before_$name" >/dev/null || "before_$name" 2>/dev/null; then
    taken=$(used)
    code=0
    "run_$name" >out 2>err || code=$?
    ended[code == 0 ? 0 : 2]=$((${ended[code == 0 ? 0 : 2]} + 1))
    [ "$code" = 0 ] || [ "$code" = 2 ] || complain "exit code $code"
    if [ "$code" = 2 ]; then
      [ "$(grep -c '^longstride: ' err)" = 1 ] || complain "not one sentence"
      tail -n 1 err | grep -q 'disk.*No space left on device' || complain "the last line names no file or no reason"
    fi
    [ -z "$(find disk -name '.tmp-*')" ] || complain "left behind: $(find disk -name '.tmp-*' | head -n 2)"
    "after_$name"
  fi
  all=$(used)
  umount disk
}
used() { echo $(($(stat -f -c '(%b-%f)*%S/1024' disk))); } # KiB

for name in ${FULL_DISK_CASES:-bytes images cifar10 audio train resume sample export new_export report show attention reproduce}; do
  ended=([0]=0 [2]=0)
  on_disk 65536
  if [ "${ended[0]}" != 1 ]; then
    [ "$name" != audio ] || ! grep -q "which this build lacks" err || { echo "$name: not in this build"; continue; }
    complain "it fails with enough room"
    continue
  fi
  least=$((taken > 4 ? taken : 4)) most=$((all * 7 / 4 + 8))  # room for the new files next to the old ones
  for ((i = 0; i < sizes; ++i)); do
    on_disk $((least + ((most - least) * i + RANDOM * (most - least) / 32768) / sizes / 4 * 4))
  done
  echo "$name: ${ended[0]} succeeded, ${ended[2]} ended with 2"
done
[ "$failures" = 0 ] || { echo "$failures failure(s)"; exit 1; }
