#!/usr/bin/env bash
# All checks for a change to a kernel or to the training step, queued over all GPUs of this host: the GPU tests, each in
# its own process; compute-sanitizer; parity with PyTorch; and steps timed next to PyTorch's.
#
#   tests/gpu/scripts/verify.sh BUILD OUTPUT [--data DIR] [--steps] [--gpus 4] [--seconds 1500]
#                                [--python python3]
#
# BUILD: a build folder, such as build/cuda. --data: a folder with text.h5, cifar10.h5, images.h5 and audio.h5 from
# `longstride prepare`, for parity, which is skipped without it. Steps are timed with --steps. --gpus and --seconds: as for queue.sh. OUTPUT, new or empty, gets tests.txt, sanitizers.txt, parity/ and
# steps/. Prints what each found; exits with 1 if anything failed, was skipped or was left out.
set -uo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 2 ] || { echo "verify.sh: needs a build folder and an output folder; see the top of the file" >&2; exit 2; }
build=$(CDPATH= cd -- "$1" && pwd) || exit 2
[ -z "$(ls -A "$2" 2>/dev/null)" ] || { echo "verify.sh: $2 is not empty; give a new folder" >&2; exit 2; }
mkdir -p "$2"
output=$(CDPATH= cd -- "$2" && pwd) data="" steps="" limits=() python=python3
shift 2
while [ $# -gt 0 ]; do
  case "$1" in
    --data) data=$(CDPATH= cd -- "$2" && pwd) || exit 2 ;;
    --steps) steps=1; shift; continue ;;
    --gpus | --seconds) limits+=("$1" "$2") ;;
    --python) python=$2 ;;
    *) echo "verify.sh: unknown option '$1'; see the top of the file" >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p "$output/tests" "$output/parity" "$output/steps"

every_test() {
  names() { awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }'; }
  { "$build/tests/test_gpu" --gtest_list_tests | names | sed 's/^/test_gpu /'
    "$build/tests/test_ops" --gtest_filter='*/gpu_*' --gtest_list_tests | names | sed 's/^/test_ops /'
  } >"$output/tests.list"
  one_test() {
    local log
    log=$output/tests/$(tr / _ <<<"$2").log
    timeout 300 "$build/tests/$1" --gtest_filter="$2" >"$log" 2>&1
    local code=$?
    if [ $code -ne 0 ]; then echo "failed ($code): $2"; elif grep -q SKIPPED "$log"; then echo "skipped: $2"; else echo "passed: $2"; fi
  }
  export -f one_test
  # Four tests at once share the cores: with a team as large as the machine each, their threads mostly wait.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + 3) / 4))}
  export build output
  xargs -P 4 -n 2 bash -c 'one_test "$@"' _ <"$output/tests.list" >"$output/tests.txt"
  ! grep -v '^passed' "$output/tests.txt" && [ -s "$output/tests.txt" ]
}
sanitizers() { "$here/sanitize.sh" "$build/tests/test_gpu" >"$output/sanitizers.txt" 2>&1; }
parity() { # family
  "$python" "$here/../../peers/run.py" parity --data "$data" --output "$output/parity/$1" --command "$build/longstride" \
    --families "$1" >"$output/parity/$1.txt" 2>&1
}
steps() { # model, recompute
  "$python" "$here/../../peers/run.py" steps --command "$build/longstride" --only "$1" --recompute "$2" \
    >"$output/steps/$1-$2.md" 2>"$output/steps/$1-$2.log" && ! grep -q 'ended with\|took more than' "$output/steps/$1-$2.md"
}
export here build output data python
export -f every_test sanitizers parity steps

# Expected seconds on an H200.
lines() {
  echo "100 every_test"
  echo "200 sanitizers"
  if [ -n "$data" ]; then
    for family in enwik8 cifar10 imagenet64 audio; do echo "60 parity $family"; done
  fi
  [ -n "$steps" ] || return 0
  echo "300 steps enwik8_fixed none"
  echo "300 steps enwik8_fixed block"
  for model in cifar_strided imagenet64 audio65k audio262k audio1m; do
    for policy in none block; do echo "$([ "$model" = cifar_strided ] && echo 140 || echo 70) steps $model $policy"; done
  done
}
lines | "$here/queue.sh" "${limits[@]}"
failed=$?

echo "tests: $(wc -l <"$output/tests.list") on the GPU, $(grep -c '^passed' "$output/tests.txt") passed; not passed:"
grep -v '^passed' "$output/tests.txt"
grep -E '^(mem|race|init)check' "$output/sanitizers.txt"
cat "$output"/parity/*/results.jsonl 2>/dev/null
tail -qn +3 "$output"/steps/*.md 2>/dev/null | grep -E '\| (none|block) \|'
exit $failed
