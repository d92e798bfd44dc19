#!/usr/bin/env bash
# compute-sanitizer over the GPU kernels on tiny shapes: attention on both paths, training steps of a toy model in every
# precision, and what a toy is too small for: products by panels, losses from logits in registers, and embeddings of
# many positions.
#
#   sanitize.sh TEST_GPU [memcheck | racecheck | initcheck ...]     TEST_GPU: build/cuda/tests/test_gpu, beside test_ops
#
# Prints what each tool found and how long it took; SECONDS_EACH (120) limits one run. Exits with 1 if anything failed.
set -uo pipefail
[ $# -ge 1 ] || { echo "sanitize.sh: needs the program test_gpu; see the top of the file" >&2; exit 2; }
test_gpu=$1 test_ops=$(dirname "$1")/test_ops
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck)
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not installed" >&2; exit 2; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive

# Instruments only our kernels, since all of cuBLASLt's take too long. Its Hopper kernels are included, because
# racecheck faults in them if it has instrumented other kernels but not them. Older releases have the filter under
# another name.
filter=--kernel-name
"$sanitizer" --help | grep -q -- "$filter" || filter=--kernel-regex
ours=("$filter" kns=longstride "$filter" kns=sm90)

failed=0
run() {  # tool, gtest filter, more options
  local tool=$1 filter=$2 program=$test_gpu begin=$SECONDS log status
  shift 2
  [[ $filter != */gpu_* ]] || program=$test_ops
  log=$(mktemp)
  timeout -k 5 "${SECONDS_EACH:-120}" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 100 "$@" \
    "$program" --gtest_filter="$filter" >"$log" 2>&1
  status=$?
  # racecheck does not understand how some of cuBLASLt's kernels wait: hazards in those alone are not ours.
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
lists=Paths/ListsCuda.TinyShapesAreAsGoodAsNaive/Automatic
long_band=LongBandCuda.TinyShapesAreAsGoodAsNaive
fp32_step=TrainingOnTheGpu.Fp32GradientsAreAsExactAsOnTheCpu
narrow_steps=TrainingOnTheGpu.LowPrecisionGradientsStayWithinTheirRounding
panels=GemmCuda.PanelsOfFewTilesAreAsExactAsOnTheCpu
loss=On/LogitsLossCuda.OneWidthIsAsExactAsOnTheCpu/bf16
embedding=On/EmbeddingTest.RowsThatContinueAStreamReadTheirOwnTokens/gpu_bf16
embedding+=:On/EmbeddingTest.GradientsHaveTheSameBitsEachTime/gpu_bf16
embedding+=:On/EmbeddingTest.ASlotAtALaterPositionTakesItsOwnToken/gpu_bf16
for tool in "${tools[@]}"; do
  if [ "$tool" = initcheck ]; then
    # Arrays that tests fill with NaN would count as initialised, so the portable path runs without that. initcheck does
    # not see what TMA stores, so Hopper's kernels, ours and cuBLASLt's, rely on the NaN, and the training step runs in
    # fp32, whose kernels use no TMA. cuBLASLt's must be watched too, or all that they write counts as uninitialised.
    run initcheck "$tiny/Automatic" "${ours[@]}"
    run initcheck "$long_band" "${ours[@]}"
    run initcheck "$lists" "${ours[@]}"
    LONGSTRIDE_TEST_POISON=0 run initcheck "$tiny/Portable" "${ours[@]}"
    run initcheck "$fp32_step"
  else
    for filter in "$tiny/Automatic" "$tiny/Portable" "$lists" "$long_band" "$fp32_step" "$narrow_steps" "$panels" \
      "$loss" "$embedding"; do
      run "$tool" "$filter" "${ours[@]}"
    done
  fi
done
exit $failed
