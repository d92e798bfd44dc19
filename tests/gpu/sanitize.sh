#!/usr/bin/env bash
# compute-sanitizer over the GPU kernels on tiny shapes: attention on both paths, and training steps of a toy model in
# every precision.
#
#   sanitize.sh TEST_GPU [memcheck | racecheck | initcheck ...]     TEST_GPU: build/cuda/tests/test_gpu
#
# Each tool says what it found and how long it took; SECONDS_EACH (60) limits one run. Exits with 1 if anything failed.
set -uo pipefail
test_gpu=$1
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck)
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not installed" >&2; exit 2; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive

# Only our kernels: instrumenting cuBLASLt's takes minutes. Older releases have the filter under another name.
ours=(--kernel-name kns=longstride)
"$sanitizer" --help | grep -q -- '--kernel-name' || ours=(--kernel-regex kns=longstride)

failed=0
run() {  # tool, gtest filter, more options
  local tool=$1 filter=$2 begin=$SECONDS log status
  shift 2
  log=$(mktemp)
  timeout -k 5 "${SECONDS_EACH:-60}" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 3 "$@" \
    "$test_gpu" --gtest_filter="$filter" >"$log" 2>&1
  status=$?
  if [ $status -ne 0 ] || ! grep -q '\[  PASSED  \]' "$log" || grep -q '\[  SKIPPED \]' "$log"; then
    failed=1
    grep -E '=========|FAILED|SKIPPED|Failure' "$log" | head -30
  fi
  echo "$tool, $filter: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1 | sed 's/=* *//'), exit status $status," \
    "$((SECONDS - begin)) s"
  rm -f "$log"
}

steps='TrainingOnTheGpu.Fp32GradientsAreAsNearToExactOnesAsTheCpus:TrainingOnTheGpu.NarrowGradientsStayWithinTheirTypesRounding'
for tool in "${tools[@]}"; do
  only=("${ours[@]}")
  # Arrays that tests fill with NaN first would count as initialised, and so does nothing that cuBLASLt's kernels write
  # unless they are instrumented too.
  if [ "$tool" = initcheck ]; then
    only=()
    export LONGSTRIDE_TEST_POISON=0
  fi
  for path in Automatic Portable; do run "$tool" "Paths/AttentionCuda.TinyShapesAreAsGoodAsNaive/$path" "${only[@]}"; done
  run "$tool" "$steps" "${only[@]}"
done
exit $failed
