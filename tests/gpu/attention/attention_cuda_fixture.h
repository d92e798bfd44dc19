// Attention on the GPU in every type and on every path, compared with the definition.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/base/gpu_kind.h"
#include "tests/gpu/attention/attention_cuda_reference.h"

namespace longstride::kernels {

inline constexpr Dtype dtypes[] = {Dtype::bf16, Dtype::f16, Dtype::f32};
inline constexpr std::int64_t key_sizes[] = {16, 32, 64, 128}, value_sizes[] = {32, 64, 128};

inline std::int64_t layers_of(const PatternConfig& p) {
  return p.integration == Integration::interleaved ? static_cast<std::int64_t>(p.parts.size()) : 1;
}

inline AttentionResult compute(const AttentionPlan& plan, const AttentionInput& in, AttentionPath path,
                               bool packed = true, const HostBounds& bounds = {}) {
  AttentionResult result;
  cuda::with_gpu_type(in.dtype, [&](auto zero) {
    const std::vector<double> sinks = sinks_of(in.shape);
    DeviceAttention<decltype(zero)> call(plan, in, path, packed, bounds, {}, {sinks.begin(), sinks.end()});
    call.run();
    result = call.result();
  });
  return result;
}

class AttentionCuda : public ::testing::TestWithParam<AttentionPath> {
 protected:
  void SetUp() override { LONGSTRIDE_NEEDS_GPU(); }

  // Makes a call that Hopper's kernels cannot take an error, where they are tested.
  void expect_hoppers_kernels() {
    if (GetParam() == AttentionPath::automatic && cuda::is_hopper()) path_ = AttentionPath::sm90;
  }

  void expect_equals_reference(const NamedPattern& p, std::int64_t layer, const AttentionShape& shape, Dtype dtype,
                               const std::vector<Mask>& masks, const AttentionPlan& plan, bool packed = true,
                               const HostBounds& bounds = {}) {
    const AttentionInput in(shape, dtype);
    const AttentionResult exact = dense_attention<double>(in, masks, Dtype::f64, sinks_of(shape));
    const AttentionResult naive = dense_attention<float>(in, masks, dtype, sinks_of(shape));
    expect_as_good_as_naive(compute(plan, in, path_, packed, bounds), naive, exact, in,
                            p.name + ", layer " + std::to_string(layer) + ", " + name_of(dtype) + ", batch " +
                                std::to_string(shape.batch) + ", n " + std::to_string(shape.n) + ", heads " +
                                std::to_string(shape.heads) + " on " + std::to_string(shape.heads_of_keys()) +
                                ", sizes " + std::to_string(shape.key_size) + " and " +
                                std::to_string(shape.value_size));
  }

 private:
  AttentionPath path_ = GetParam();
  // The work is small, and a container may have far fewer processors than OpenMP reports.
  Threads threads_{std::min(omp_get_max_threads(), 8)};
};

// The patterns of the paper's models, with an n that no stride divides.
inline std::vector<NamedPattern> models_patterns(std::int64_t l, std::int64_t c) {
  using enum Integration;
  using enum PartKind;
  return {
      {"dense", pattern_of(merged, {dense}, 0), 2},
      {"local", pattern_of(merged, {local}, l), 2},
      {"local, window l", pattern_of(merged, {local}, l, {}, l), 1},
      {"column", pattern_of(merged, {column}, l), 2},
      {"strided merged", pattern_of(merged, {local, column}, l), 2},
      {"fixed merged", with_options(pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), true, false), 4},
      {"fixed merged, inclusive", with_options(pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), true, true),
       2},
      {"fixed block", pattern_of(merged, {fixed_block}, l), 1},
      {"fixed summary", with_options(pattern_of(merged, {fixed_summary}, l, {c}), true, false), 4},
      {"fixed multihead", with_options(pattern_of(multihead, {fixed_block, fixed_summary}, l, {c}), true, false), 4},
      {"strided multihead", pattern_of(multihead, {local, column}, l), 2}};
}

}  // namespace longstride::kernels
