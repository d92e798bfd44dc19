// Chooses and launches the kernel of one side for the shapes of a problem.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/attention/sm90/general/backward_kernel.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::sm90 {

// The maps for the kinds of row set of queries and keys.
template <class B>
std::int64_t fill_problem(Side side, const AttentionBackwardArgs& args, int key_size, int value_size, bool pieces,
                          BackwardProblemInPieces& problem) {
  const Geometry& geometry = problem.geometry;
  RowSetKinds kinds;
  bool has_queries[RowSetKinds::most] = {}, has_keys[RowSetKinds::most] = {};
  std::int64_t tiles = 0;  // maximum over the heads
  for (int p = 0; p < geometry.passes; ++p) {
    const PassGeometry& pass = geometry.pass[p];
    const int kind = kinds.number_of(pass.queries);
    problem.query_kind[p] = static_cast<std::uint8_t>(kind);
    has_queries[kind] = true;
    for (int i = 0; i < pass.parts; ++i) {
      const int key_kind = kinds.number_of(pass.part[i].keys);
      problem.key_kind[p][i] = static_cast<std::uint8_t>(key_kind);
      has_keys[key_kind] = true;
    }
    if (side == Side::keys && problem.part >= pass.parts) continue;
    const RowSet& own = side == Side::queries ? pass.queries : pass.part[problem.part].keys;
    tiles = std::max(tiles, std::int64_t{pass.classes} * tiles_in(own.length, B::rows));
  }
  for (int i = 0; i < kinds.count(); ++i) {
    problem.run[i] = Divisor(kinds[i].run);
    if (has_queries[i]) {
      const std::int32_t rows = side == Side::queries ? 64 : B::step;
      const auto of_queries = [&](const Tensor& view, int columns) {
        return row_maps(view, kinds[i], static_cast<std::int32_t>(view.size(1)), rows, columns);
      };
      (side == Side::queries ? problem.own_key_sized : problem.key_sized)[i] = of_queries(args.q, key_size);
      (side == Side::queries ? problem.own_value_sized : problem.value_sized)[i] = of_queries(args.dout, value_size);
    }
    if (has_keys[i]) {
      const std::int32_t rows = side == Side::keys ? 64 : B::step;
      const auto of_keys = [&](const Tensor& view, int columns) {
        return key_maps(view, kinds[i], geometry.n, rows, columns, pieces);
      };
      (side == Side::keys ? problem.own_key_sized : problem.key_sized)[i] = of_keys(args.k, key_size);
      (side == Side::keys ? problem.own_value_sized : problem.value_sized)[i] = of_keys(args.v, value_size);
    }
  }
  return tiles;
}

template <Side side, int KeySize, int ValueSize, TileSource Source, class T, class Term = NoTerm>
void launch_backward(const AttentionBackwardArgs& args, BackwardProblemInPieces& problem, const LabelsOfLaunch* labels,
                     const Launch& launch) {
  using B = Backward<T, KeySize, ValueSize, side, Source, Term>;
  const std::int64_t tiles = fill_problem<B>(side, args, KeySize, ValueSize, B::pieces, problem);
  if constexpr (B::pieces) {
    problem.k_pieces = piece_maps(args.k, problem.geometry.n, KeySize);
    problem.v_pieces = piece_maps(args.v, problem.geometry.n, ValueSize);
  }
  auto* const kernel = backward<T, KeySize, ValueSize, side, Source, Term>;
  allow_shared(kernel, B::shared_bytes);
  const auto blocks = static_cast<unsigned>(tiles * problem.batch * args.q.size(2));
  const auto start = [&](const typename B::Problem& of_kernel) {
    run(side == Side::queries ? "attention_backward_queries_sm90" : "attention_backward_keys_sm90", kernel,
        {blocks, B::tiling.threads(), B::shared_bytes}, launch, of_kernel);
  };
  if constexpr (B::listed)
    start({problem, side == Side::queries ? ListsView::of_queries(args.lists) : ListsView::of_keys(args.lists)});
  else if constexpr (Term::given)
    start({problem, labels->view, labels->parts, labels->parts + labels->key_sized_part});
  else
    start(problem);
}

// A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros. Pieces need rows of 64
// columns; lists have kernels of two sizes, labels of one.
template <Side side>
void launch_backward_side(const AttentionBackwardArgs& args, BackwardProblemInPieces& problem,
                          const LabelsOfLaunch* labels, const Launch& launch) {
  const std::int64_t key_size = args.q.size(3), value_size = args.v.size(3);
  const auto with_sizes = [&]<TileSource source, class T>() {
    if constexpr (source == TileSource::boxes)
      if (key_size <= 32 && value_size <= 32)
        return launch_backward<side, 32, 32, source, T>(args, problem, labels, launch);
    if (key_size <= 64 && value_size <= 64)
      return launch_backward<side, 64, 64, source, T>(args, problem, labels, launch);
    if constexpr (source != TileSource::lists)
      if (key_size <= 64) return launch_backward<side, 64, 128, source, T>(args, problem, labels, launch);
    launch_backward<side, 128, 128, source, T>(args, problem, labels, launch);
  };
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (labels != nullptr)
        return launch_backward<side, 64, 64, TileSource::boxes, T, LabelsTerm>(args, problem, labels, launch);
      if (args.lists.given()) return with_sizes.template operator()<TileSource::lists, T>();
      problem.in_pieces ? with_sizes.template operator()<TileSource::pieces, T>()
                        : with_sizes.template operator()<TileSource::boxes, T>();
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
