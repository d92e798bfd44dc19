#!/usr/bin/env bash
# Checks what several GPUs of this host compute and how fast, with an existing build:
#
#   several_gpus.sh BUILD [PART...]   BUILD: a build folder. Parts: tests, command, faults, speed, context; default: all
#   COUNTS="4" several_gpus.sh BUILD  numbers of GPUs to compare with one; default: 2, 4 and 8, as far as available
#
# tests    training on 1 rank and on all GPUs compared with training on one (tests/distributed/training_test.cpp)
# command  `longstride train` on 1, 2, ... GPUs: losses, bits of a sharded optimizer, divided sequences
# speed    tokens/s per GPU compared with one GPU at the same batch per GPU, and the share of the exchange that is not
#          hidden; on all GPUs also with the exchange during the backward pass
# faults   ranks that are killed, stopped and asked to stop while they train on all GPUs, four at most (faults.sh)
# context  sequences divided between all GPUs: loss, speed and memory compared with one GPU
# Every program runs under a time limit. Prints the number of failures at the end.
set -uo pipefail
[ -d "${1:-}" ] || { echo "several_gpus.sh: needs a build folder; see the top of the file" >&2; exit 2; }
build=$(CDPATH= cd -- "$1" && pwd)
shift
parts=${*:-tests command faults speed context}
longstride=$build/longstride
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
recipes=$root/recipes
gpus=$(nvidia-smi -L | wc -l)
counts=${COUNTS-$(for n in 2 4 8; do [ "$n" -le "$gpus" ] && echo "$n"; done)}
most=${counts##*[[:space:]]}
failures=0
# NVLink multicast is a resource of the whole host, shared with its other users.
export NCCL_NVLS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed() { echo "FAILED: $*"; failures=$((failures + 1)); }
ranks() { # ranks N SECONDS command...
  local n=$1 seconds=$2
  shift 2
  timeout -k 5 "$seconds" mpirun --bind-to none -n "$n" "$@" </dev/null
}

# If this test hangs, so would all others.
try_one_test() {
  LONGSTRIDE_TEST_DEVICE=gpu ranks "$most" 60 "$build/tests/test_distributed" --gtest_brief=1 \
    '--gtest_filter=TrainingOnRanks.EveryRankHasTheSameWeights' >"$work/first" 2>&1 && return
  echo "FAILED: the first test, exit code $?; nothing else is tried"
  tail -n 20 "$work/first"
  exit 1
}

run_tests() {
  local n
  for n in 1 $counts; do
    LONGSTRIDE_TEST_DEVICE=gpu ranks "$n" 100 "$build/tests/test_distributed" --gtest_brief=1 \
      '--gtest_filter=TrainingOnRanks.*' >"$work/tests$n" 2>&1
    local code=$?
    [ "$code" = 0 ] || failed "tests on $n: exit code $code"
    echo "tests on $n GPU(s): $(grep -c 'PASSED' "$work/tests$n") of $n ranks passed, $(grep -c 'Skipped' "$work/tests$n") skipped"
    grep -E 'Failure|error|rank [0-9]+ \(' -A 6 "$work/tests$n" | head -n 40
  done
}

train() { # train RANKS NAME [options]
  local n=$1 name=$2
  shift 2
  ranks "$n" 40 "$longstride" train "$work/recipe.yaml" --device gpu --run "$work/$name" "$@" >"$work/$name.log" 2>&1 ||
    { failed "train $name"; tail -n 5 "$work/$name.log"; }
}
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([-0-9.e]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"; }
same_losses() { # A B TOLERANCE, relative, step by step
  local worst
  worst=$(paste -d ' ' <(losses "$1") <(losses "$2") |
    awk '{ d = $2 - $4; d = (d < 0 ? -d : d) / $2; if (d > m) m = d; n++ } END { printf "%.2e %d", m, n }')
  echo "losses of $1 and $2 differ by at most ${worst% *} of themselves, over ${worst#* } steps"
  awk -v w="${worst% *}" -v n="${worst#* }" -v t="$3" 'BEGIN { exit !(w <= t && n == 30) }' || failed "losses of $1 and $2"
}
same_bits() { # same_bits A B [FILES]: of the last checkpoint; a sharded optimizer's files are divided differently
  local f
  for f in "$work/$1/checkpoints/step-00000030"/${3:-*.safetensors}; do
    cmp "$f" "$work/$2/checkpoints/step-00000030/${f##*/}" || failed "bits of ${f##*/} of $1 and $2"
  done
}

run_command() {
  cat "$recipes"/*/*.yaml "$root"/tests/distributed/*.cpp | head -c 400000 >"$work/text.bin"
  "$longstride" prepare bytes --input "$work/text.bin" --split 0.9,0.05,0.05 --output "$work/text.h5" >/dev/null 2>&1
  cat >"$work/recipe.yaml" <<R
name: toy
data: {kind: bytes, path: $work/text.h5, context: 2048}
model:
  kind: sparse_transformer
  layers: 4
  width: 256
  heads: 8
  dropout: 0.1
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 64, summary: 8, distinct_heads: true}
train: {steps: 30, global_batch: 8, lr: 1.0e-3, warmup: 5, seed: 3, log_every: 1, checkpoint_every: 0, precision: fp32}
parallel: {bucket: 500000}
R
  local n
  train 1 one
  grep -E '^ *(ranks|links|exchange|memory) ' "$work/one.log"
  for n in $counts; do
    train "$n" "ranks$n"
    grep -E '^ *(ranks|links|exchange|memory) ' "$work/ranks$n.log"
    same_losses one "ranks$n" 1e-4
    train "$n" "again$n"
    same_bits "ranks$n" "again$n"
    train "$n" "shard$n" --set optimizer.shard=true
    same_bits "ranks$n" "shard$n" model.safetensors
    train "$n" "context$n" --set parallel.sequence_ranks="$n"
    same_losses one "context$n" 1e-4
    train "$n" "bf16_$n" --set train.precision=bf16
    train "$n" "bf16_shard$n" --set train.precision=bf16 --set optimizer.shard=true
    same_bits "bf16_$n" "bf16_shard$n" model.safetensors
    same_losses one "bf16_$n" 2e-2
  done
  # Two ranks on one GPU are refused in a sentence.
  CUDA_VISIBLE_DEVICES=0 ranks 2 30 "$longstride" train "$work/recipe.yaml" --device gpu --run "$work/two" \
    >"$work/two.log" 2>&1 && failed "two ranks on one GPU are not refused"
  grep -m 1 'would share GPU' "$work/two.log" || failed "two ranks on one GPU"
}

value() { sed -n "s/.*\"$2\": \([-0-9.e+]*\).*/\1/p" "$work/$1.json" | head -n 1; }
bench() { # bench RANKS NAME RECIPE STEPS [options]
  local n=$1 name=$2 recipe=$3 steps=$4
  shift 4
  ranks "$n" 60 "$longstride" bench step "$recipes/$recipe.yaml" --device gpu --json --steps "$steps" "$@" \
    >"$work/$name.json" 2>"$work/$name.log" || { failed "bench $name"; tail -n 3 "$work/$name.log"; }
}
bench_alone() { # bench_alone NAME RECIPE STEPS [options]: every GPU by itself, all at the same time
  local gpu name=$1
  shift
  for ((gpu = 0; gpu < most; ++gpu)); do CUDA_VISIBLE_DEVICES=$gpu bench 1 "$name-on$gpu" "$@" & done
  wait
}
# compare ONE MANY RANKS: at the same batch per GPU. GPUs differ by a few percent and ranks wait for the slowest, so
# that one is the baseline.
compare() {
  local gpu alone=""
  for ((gpu = 0; gpu < $3; ++gpu)); do alone+=" $(value "$1-on$gpu" milliseconds)"; done
  awk -v alone="$alone" -v tn="$(value "$2" milliseconds)" -v e="$(value "$2" exchange_milliseconds)" \
    -v s="$(value "$2" tokens_per_second)" -v n="$3" -v name="$2" 'BEGIN {
      for (i = split(alone, t, " "); i > 0; --i) { if (t[i] > t1) t1 = t[i]; sum += t[i]; ++count }
      if (tn == 0 || count < n) { print name ": no figures"; exit 1 }
      printf "%-24s %d GPUs: %.2f ms, the slowest alone %.2f ms, efficiency %.2f%% (of their mean %.2f%%), %.0f tokens/s per GPU, exchange alone %.2f ms, not hidden %.0f%%\n",
        name, n, tn, t1, 100 * t1 / tn, 100 * sum / count / tn, s / n, e, (e > 0 ? 100 * (tn - t1) / e : 0) }' ||
    failed "figures of $2"
}

run_speed() {
  local recipe batch n
  while read -r recipe batch; do
    bench_alone "$recipe" "table1/$recipe" 12 --set train.global_batch="$batch"
    for n in $counts; do
      bench "$n" "$recipe-x$n" "table1/$recipe" 12 --set train.global_batch=$((batch * n))
      compare "$recipe" "$recipe-x$n" "$n"
    done
    n=$most
    bench "$n" "$recipe-overlap" "table1/$recipe" 8 --set train.global_batch=$((batch * n)) --set parallel.overlap=always
    compare "$recipe" "$recipe-overlap" "$n"
    [ "$recipe" != cifar10-strided ] || continue
    bench "$n" "$recipe-shard" "table1/$recipe" 8 --set train.global_batch=$((batch * n)) --set optimizer.shard=true
    compare "$recipe" "$recipe-shard" "$n"
    [ "$recipe" = enwik8-fixed ] || continue
    bench "$n" "$recipe-fp32" "table1/$recipe" 8 --set train.global_batch=$((batch * n)) --set parallel.gradients=fp32
    compare "$recipe" "$recipe-fp32" "$n"
  done <<R
enwik8-fixed 8
imagenet64-strided 8
cifar10-strided 32
R
}

run_faults() {
  [ "${most:-1}" -ge 2 ] || { echo "faults: needs two GPUs"; return 0; }
  local case
  export RANKS=$((most < 4 ? most : 4))
  # In parallel: the runs are small, and starting them takes most of the time.
  for case in "kill 3" stop signal signal_saving; do
    # shellcheck disable=SC2086
    { LONGSTRIDE_TEST_DEVICE=gpu timeout -k 5 200 bash "$root/tests/distributed/faults.sh" "$longstride" $case
      echo $? >"$work/faults-${case%% *}.code"; } >"$work/faults-${case%% *}" 2>&1 &
  done
  wait
  for case in kill stop signal signal_saving; do
    [ "$(cat "$work/faults-$case.code")" = 0 ] || { failed "faults, $case"; tail -n 20 "$work/faults-$case"; }
    echo "faults on $RANKS GPUs, $case: done"
  done
}

run_context() {
  local n recipe=table4/audio-1m
  bench 1 whole "$recipe" 5
  for n in $counts; do
    [ "$n" -le 4 ] || continue
    bench "$n" "divided$n" "$recipe" 5 --set parallel.sequence_ranks="$n"
    awk -v t1="$(value whole milliseconds)" -v tn="$(value "divided$n" milliseconds)" -v n="$n" \
      -v l1="$(value whole loss)" -v ln="$(value "divided$n" loss)" -v m1="$(value whole used_bytes)" \
      -v mn="$(value "divided$n" used_bytes)" 'BEGIN {
        printf "1,048,576 positions on %d GPUs: %.1f ms, on one %.1f, efficiency %.1f%%, %.2f and %.2f GiB per GPU, losses %.6f and %.6f\n",
          n, tn, t1, 100 * t1 / tn / n, mn / 2^30, m1 / 2^30, ln, l1
        d = ln - l1; exit !(tn > 0 && (d < 0 ? -d : d) < 1e-3 * l1) }' || failed "1,048,576 positions on $n GPUs"
  done
  [ "$most" = 4 ] || return 0
  bench 4 four_million "$recipe" 3 --set data.context=4194304 --set parallel.sequence_ranks=4
  echo "4,194,304 positions on 4 GPUs: $(value four_million milliseconds) ms, $(value four_million used_bytes) bytes per GPU, loss $(value four_million loss)"
}

echo "$gpus GPU(s); counts:" $counts
[ -z "$most" ] || try_one_test
for part in $parts; do
  begin=$(date +%s)
  case $part in
    tests) run_tests ;;
    command) run_command ;;
    speed) run_speed ;;
    faults) run_faults ;;
    context) run_context ;;
    *) failed "unknown part $part" ;;
  esac
  echo "-- $part: $(($(date +%s) - begin)) s"
done
echo "failures: $failures"
exit "$((failures > 0))"
