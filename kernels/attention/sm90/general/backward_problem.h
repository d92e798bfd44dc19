// The parameters of a backward kernel, passed by value.
#pragma once
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/sm90/general/backward_tiling.h"
#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/pass_shape.h"
#include "kernels/attention/sm90/general/piece_maps.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"
#include "kernels/attention/sm90/row_maps.h"
#include "kernels/attention/term/labels_sm90.h"

namespace longstride::kernels::cuda::sm90 {

// A gradient to write: rows of one (sequence, head), strides in elements.
struct Gradient {
  void* data;
  std::int64_t stride[3];
  std::int32_t size;
};

struct BackwardProblem {
  // Maps per kind of row set, for the rows that a block owns and for the streamed rows. Key-sized: q or k; value-sized:
  // dO or v.
  RowMaps own_key_sized[RowSetKinds::most], own_value_sized[RowSetKinds::most];
  RowMaps key_sized[RowSetKinds::most], value_sized[RowSetKinds::most];
  Geometry geometry;
  std::uint8_t query_kind[Geometry::most_passes];
  std::uint8_t key_kind[Geometry::most_passes][PassGeometry::most_parts];
  std::int32_t part;  // Side::keys: the number of the part; Side::queries: 0, and all parts are used
  bool adds[Geometry::most_passes][PassGeometry::most_parts];  // to the results of earlier launches
  std::int32_t batch;
  Divisor heads_per_key;  // query heads that read one head of k and v; dK and dV have all heads
  float scale;
  const float *lse, *delta;
  BoundsView bounds;                                  // for the rows that a block owns, in rows of the other side
  Gradient key_sized_gradient, value_sized_gradient;  // dQ, or dK and dV

#ifdef __CUDACC__
  __device__ std::int32_t queries() const { return geometry.n; }
  // The sequence of the inputs that a task's is a share of.
  __device__ std::int32_t sequence_of(std::int32_t sequence) const { return sequence; }
  __device__ Interval share_of(const Interval& seen, std::int32_t) const { return seen; }
#endif
};

struct BackwardProblemInPieces : BackwardProblem {
  bool in_pieces;  // the kernels that read tiles in pieces are used; the others do not receive this
  PieceMaps k_pieces, v_pieces;
  Divisor run[RowSetKinds::most];  // per kind of row set
};

struct BackwardProblemOfLists : BackwardProblem {
  ListsView lists;  // those of the rows that a block owns
};

// With labels, other queries than keys, or shares.
struct BackwardProblemOfLabels : BackwardProblem {
  LabelsView labels;

  float *key_sized_parts = nullptr, *value_sized_parts = nullptr;  // gradients of shares, if there are several

#ifdef __CUDACC__
  __device__ std::int32_t queries() const { return labels.queries; }
  __device__ std::int32_t sequence_of(std::int32_t sequence) const { return labels.shares.input(sequence); }
  __device__ Interval share_of(const Interval& seen, std::int32_t sequence) const {
    return labels.shares.clamp(seen, sequence);
  }
#endif
};

// The labels of one side's launch, or none of blocks that share tiles. parts: gradients of shares, of which the
// key-sized ones come first.
struct LabelsOfLaunch {
  LabelsView view;
  float* parts = nullptr;
  std::int64_t key_sized_part = 0;  // elements
};
// Launches the kernel of one side for one pass; fills in the maps and kinds of `problem`. labels: given with labels,
// other queries than keys, or shares.
void launch_backward_queries(const AttentionBackwardArgs& args, BackwardProblemInPieces& problem,
                             const LabelsOfLaunch* labels, const Launch& launch);
void launch_backward_keys(const AttentionBackwardArgs& args, BackwardProblemInPieces& problem,
                          const LabelsOfLaunch* labels, const Launch& launch);
// gradient = the sum of the shares' parts (shares, batch, rows, heads, 64), in order, or += when `adds`.
void sum_shares(const float* parts, std::int32_t shares, const Tensor& gradient, bool adds, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
