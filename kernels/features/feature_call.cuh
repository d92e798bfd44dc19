// The arguments of the kernels of features.
#pragma once
#include <cuda_bf16.h>

#include <cmath>
#include <type_traits>

#include "kernels/base/gpu_kind.h"
#include "kernels/base/head_matrix.h"
#include "kernels/features/features.h"
#include "kernels/scan/scan.h"

namespace longstride::kernels::cuda::scanning {

struct FeatureCall {
  FeatureKind kind = FeatureKind::softmax;
  HeadMatrix x, features, dfeatures, dx;
  const float* projection = nullptr;
  float* c = nullptr;         // (units, n): largest exponents, then c
  float* segments = nullptr;  // (units, running_segments(n), 2): a segment's largest, and 1 if a group begins in it
  float* decay = nullptr;
  const std::int32_t* begin = nullptr;
  const float* first_c = nullptr;
  float* last_c = nullptr;
  bool states = false;
  std::int32_t n = 0, heads = 0, units = 0, chunks = 0, d = 0, m = 0, projections = 1;
  float scale = 1;  // d^(-1/4)
  bool aligned = true, both = false;

  template <class Args>
  explicit FeatureCall(const Args& args)
      : kind(args.kind),
        x(args.x),
        features(args.features),
        projection(args.projection.template as<const float>()),
        n(static_cast<std::int32_t>(args.x.size(1))),
        heads(static_cast<std::int32_t>(args.x.size(2))),
        units(static_cast<std::int32_t>(args.x.size(0)) * heads),
        chunks(static_cast<std::int32_t>(scan_chunks(n))),
        d(static_cast<std::int32_t>(args.x.size(3))),
        m(static_cast<std::int32_t>(args.projection.size(1))),
        projections(static_cast<std::int32_t>(args.projection.size(0))),
        scale(static_cast<float>(std::pow(static_cast<double>(d), -0.25))) {}

  dim3 grid() const { return {static_cast<unsigned>(chunks), static_cast<unsigned>(units)}; }
};

// Kernels for 16-bit rows of whole words whose projection fits in shared memory (feature_fragments.cuh): a pass of
// rows.
enum class FeatureStage : std::uint8_t {
  maxima,      // the largest exponents, to c
  features,    // relative to c
  own_maxima,  // relative to each row's largest exponent
  gradients
};
bool takes_fragments(const FeatureCall& call);
template <class T>
void features_by_fragments(const FeatureCall& call, FeatureStage stage, const Launch& launch);
// The same on Hopper, of bf16 rows that it takes (features_sm90.cu).
bool takes_wide_features(const FeatureCall& call);
void wide_features(const FeatureCall& call, FeatureStage stage, const Launch& launch);
// The one of the two that takes the call.
template <class T>
void features_by_tiles(const FeatureCall& call, FeatureStage stage, const Launch& launch) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    if (takes_wide_features(call) && is_hopper()) return wide_features(call, stage, launch);
  features_by_fragments<T>(call, stage, launch);
}

}  // namespace longstride::kernels::cuda::scanning
