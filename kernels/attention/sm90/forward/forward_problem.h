// The parameters of the forward kernel, passed by value.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/sm90/general/pass_shape.h"
#include "kernels/attention/sm90/general/piece_maps.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"
#include "kernels/attention/sm90/row_maps.h"
#include "kernels/attention/term/labels_sm90.h"

namespace longstride::kernels::cuda::sm90 {

struct ForwardProblem {
  RowMaps q[RowSetKinds::most], k[RowSetKinds::most], v[RowSetKinds::most], o[RowSetKinds::most];
  PassShape pass[Geometry::most_passes];
  std::uint8_t pass_of[Geometry::most_heads];
  Divisor heads, batch, heads_per_key;  // query heads that read one head of k and v
  std::int64_t tasks;                   // tiles of queries, of all heads and sequences
  std::int32_t n;
  float rate;          // scale * log2(e)
  bool resumes;        // from o and lse of an earlier pass
  const void* o_data;  // to resume from
  std::int32_t value_size;
  std::int64_t o_stride[3];
  float* lse;
  const float* sink;  // (heads); null: none, or it has joined in an earlier pass
  BoundsView bounds;

  __device__ std::int32_t queries() const { return n; }
  // The inputs' sequence, of a task's.
  __device__ std::int32_t sequence_of(std::int32_t sequence) const { return sequence; }
  __device__ Interval share_of(const Interval& seen, std::int32_t) const { return seen; }
  __device__ bool joins_sink(std::int32_t) const { return sink != nullptr; }
};

struct ForwardProblemInPieces : ForwardProblem {
  PieceMaps k_pieces, v_pieces;
};

struct ForwardProblemOfLists : ForwardProblem {
  ListsView lists;
};

// With labels or other queries than keys.
struct ForwardProblemOfLabels : ForwardProblem {
  LabelsView labels;

  __device__ std::int32_t queries() const { return labels.queries; }
  __device__ std::int32_t sequence_of(std::int32_t sequence) const { return labels.shares.input(sequence); }
  __device__ Interval share_of(const Interval& seen, std::int32_t sequence) const {
    return labels.shares.clamp(seen, sequence);
  }
  __device__ bool joins_sink(std::int32_t sequence) const { return sink != nullptr && labels.shares.of(sequence) == 0; }
};

}  // namespace longstride::kernels::cuda::sm90
