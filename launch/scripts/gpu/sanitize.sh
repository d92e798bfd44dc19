#!/usr/bin/env bash
# compute-sanitizer over the GPU kernels on tiny shapes: attention on both paths, training steps of a toy model in every
# precision, and the products with the activation inside, which a toy is too small for.
#
#   sanitize.sh TEST_GPU [memcheck | racecheck | initcheck ...]     TEST_GPU: build/cuda/tests/test_gpu
#
# Each tool says what it found and how long it took; SECONDS_EACH (120) limits one run. Exits with 1 if anything failed.
set -uo pipefail
test_gpu=$1
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck)
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not installed" >&2; exit 2; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive

# Only our kernels: instrumenting all of cuBLASLt's takes long. Its Hopper kernels are instrumented too, for racecheck
# faults in them when it has changed other kernels beside them. Older releases have the filter under another name.
filter=--kernel-name
"$sanitizer" --help | grep -q -- "$filter" || filter=--kernel-regex
ours=("$filter" kns=longstride "$filter" kns=sm90)

failed=0
run() {  # tool, gtest filter, more options
  local tool=$1 filter=$2 begin=$SECONDS log status
  shift 2
  log=$(mktemp)
  timeout -k 5 "${SECONDS_EACH:-120}" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 100 "$@" \
    "$test_gpu" --gtest_filter="$filter" >"$log" 2>&1
  status=$?
  # racecheck does not know how some of cuBLASLt's kernels wait: what it says of them alone is not about ours.
  if [ $status -eq 9 ] && [ "$tool" = racecheck ] && grep -q 'access at nvjet_' "$log" &&
    ! grep 'access at' "$log" | grep -qv 'access at nvjet_'; then
    status="0 (hazards within the library's kernels alone)"
  fi
  if [ "${status%% *}" -ne 0 ] || ! grep -q '\[  PASSED  \]' "$log" || grep -q '\[  SKIPPED \]' "$log"; then
    failed=1
    grep -E '=========|FAILED|SKIPPED|Failure' "$log" | head -30
  fi
  echo "$tool, $filter: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1 | sed 's/=* *//'), exit status $status," \
    "$((SECONDS - begin)) s"
  rm -f "$log"
}

tiny=Paths/AttentionCuda.TinyShapesAreAsGoodAsNaive
fp32_step=TrainingOnTheGpu.Fp32GradientsAreAsExactAsOnTheCpu
narrow_steps=TrainingOnTheGpu.LowPrecisionGradientsStayWithinTheirRounding
fused_activation=GemmCuda.AFused*GivesTheSameBitsAsASeparatePass
for tool in "${tools[@]}"; do
  if [ "$tool" = initcheck ]; then
    # Arrays that tests fill with NaN would count as initialised: those of the portable path are left as they are. What
    # TMA stores, initcheck does not see: Hopper's kernels, ours and cuBLASLt's, rely on the NaN, and the training step
    # runs in fp32, whose kernels use no TMA. cuBLASLt's must be watched too, or all that they write is uninitialised.
    run initcheck "$tiny/Automatic" "${ours[@]}"
    LONGSTRIDE_TEST_POISON=0 run initcheck "$tiny/Portable" "${ours[@]}"
    run initcheck "$fp32_step"
  else
    for filter in "$tiny/Automatic" "$tiny/Portable" "$fp32_step" "$narrow_steps" "$fused_activation"; do
      run "$tool" "$filter" "${ours[@]}"
    done
  fi
done
exit $failed
