// Tasks of the kernel that sums dQ in turns, for own blocks and summary rows (joined_order.h).
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/general/load_pieces.cuh"
#include "kernels/attention/sm90/long_band/joined_order.h"
#include "kernels/attention/sm90/long_band/seen_keys.cuh"
#include "kernels/attention/sm90/long_band/turn_task.cuh"

namespace longstride::kernels::cuda::sm90 {

struct JoinedProblem : TurnProblem {
  RowMaps summary_k, summary_v;  // boxes, or whole runs if tiles are read in pieces
  PieceMaps pieces_k, pieces_v;
  bool in_pieces;
  std::int32_t run;                          // summary rows of a block
  std::int32_t first[Geometry::most_heads];  // and where they begin in it, per head
};

template <int Strips>
struct JoinedTask : BandBackwardLargeTask {
  static constexpr int strips = Strips;
  using Problem = JoinedProblem;
  template <class Kernel>
  using Seen = SeenKeys;
  struct alignas(16) Ticket {
    std::int32_t key, head, sequence, begin, end, lane, group, valid;
  };
  std::int32_t key, lane, group;
  std::int32_t first_query, end_query;  // query tiles
  bool is_summary;

  __device__ static JoinedOrder walk_of(const JoinedProblem& problem, std::int32_t head) {
    return {{problem.shape, problem.n, Strips}, problem.run, problem.first[head]};
  }
  __device__ JoinedOrder order(const JoinedProblem& problem) const { return walk_of(problem, head); }
  __device__ Ticket ticket(const JoinedProblem& problem, std::uint32_t index) const {
    const TurnOrder at(problem, index);
    const JoinedOrder of = walk_of(problem, at.head);
    return {at.key, at.head, at.sequence, of.begin_of(at.key), of.end_of(at.key), at.lane, at.group, 1};
  }
  __device__ void take(const JoinedProblem& problem, const Ticket& t) {
    key = t.key;
    head = t.head;
    sequence = t.sequence;
    first_query = t.begin;
    end_query = t.end;
    lane = t.lane;
    group = t.group;
    is_summary = order(problem).is_summary(key);
    base = 0;
    length = problem.n;
    step = 1;
  }

  // The query tiles that see the task's keys, or one strip of them.
  __device__ std::int32_t begin() const { return first_query; }
  __device__ std::int32_t end(const JoinedProblem&) const { return end_query; }
  __device__ std::int32_t begin(const JoinedProblem& problem, int strip, const SeenKeys&) const {
    return order(problem).begin_of(key, strip);
  }
  __device__ std::int32_t end(const JoinedProblem& problem, int strip, const SeenKeys&) const {
    return order(problem).end_of(key, strip);
  }
  // The turn at the sum of a query tile.
  __device__ std::int32_t turn(const JoinedProblem& problem, std::int32_t query) const {
    return order(problem).turn(key, query);
  }
  __device__ bool is_first(const JoinedProblem& problem, std::int32_t query) const { return turn(problem, query) == 0; }
  __device__ bool is_last(const JoinedProblem& problem, std::int32_t query) const {
    return order(problem).is_last(key, query);
  }

  // Loads the task's keys, or values, by a warp.
  template <class Kernel>
  __device__ void load_keys(const Kernel& kernel, char* to, std::uint64_t* full) const {
    const JoinedProblem& problem = kernel.problem;
    load(kernel, problem.k, problem.summary_k, problem.pieces_k, to, full);
  }
  template <class Kernel>
  __device__ void load_values(const Kernel& kernel, char* to, std::uint64_t* full) const {
    const JoinedProblem& problem = kernel.problem;
    load(kernel, problem.v, problem.summary_v, problem.pieces_v, to, full);
  }
  template <class Kernel>
  __device__ void load(const Kernel& kernel, const RowMaps& positions, const RowMaps& rows, const PieceMaps& pieces,
                       char* to, std::uint64_t* full) const {
    const JoinedProblem& problem = kernel.problem;
    if (!is_summary) {
      const std::int32_t tile = Strips * order(problem).key_tile(key);
      kernel.load_rows(
          to, positions, [&](int strip) { return kernel.corner(tile + strip, 0); }, full);
    } else if (problem.in_pieces) {
      if (kernel.lane == 0) barrier_arrive_expect(full, Strips * Kernel::key_bytes);
      __syncwarp();
      using Copy = PieceCopy<Kernel::key_boxes, band_rows * Kernel::key_row>;
      for (int strip = 0; strip < Strips; ++strip)
        load_in_pieces(kernel, Copy{&rows.complete, pieces, to + strip * Kernel::key_bytes, full}, strip);
    } else {
      kernel.load_rows(
          to, rows, [&](int strip) { return summary_corner(problem, strip); }, full);
    }
  }
  __device__ std::int32_t first_row(int strip) const { return (Strips * key + strip) * band_rows; }
  __device__ Coordinates summary_corner(const JoinedProblem& problem, int strip) const {
    const std::int32_t row = first_row(strip);
    return {{0, head, problem.first[head] + row % problem.run, row / problem.run, sequence}};
  }
  template <class Kernel, class Copy>
  __device__ void load_in_pieces(const Kernel& kernel, const Copy& copy, int strip) const {
    const JoinedProblem& problem = kernel.problem;
    const TilePieces pieces(problem.first[head], problem.run, problem.shape.block, first_row(strip), band_rows,
                            [&](std::int32_t x) { return x / problem.run; });
    load_pieces(pieces, kernel.key_head(), sequence, kernel.lane, warp_threads, copy);
  }
  template <class Kernel>
  __device__ SeenKeys seen(const Kernel& kernel, int strip) const {
    SeenKeys seen;
    const JoinedOrder of = order(kernel.problem);
    const std::int32_t* const document_end = kernel.problem.bounds.of(sequence, head).end;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = strip * band_rows + kernel.warp * 16 + kernel.lane / 4 + 8 * r;
      const std::int32_t position = of.key_of(key, i);
      seen.begin[r] = position >= 0 ? position : SeenKeys::none;
      seen.end[r] = position >= 0 ? of.end_of_key(key, position) : SeenKeys::none;
      if (document_end != nullptr && position >= 0) seen.end[r] = min(seen.end[r], document_end[position]);
    }
    seen.share();
    return seen;
  }
  // Turns S into P, and P into the product's operand, for the query tile that begins there.
  template <class Kernel, int Count>
  __device__ void weigh(const Kernel& kernel, float (&s)[Count], std::uint32_t (&weights)[4][4], const SeenKeys& seen,
                        std::int32_t begin, const typename Kernel::Statistics& of) const {
    seen.weigh(kernel, s, weights, begin, of);
  }
  template <class Kernel, int Count>
  __device__ void store(const Kernel& kernel, const SeenKeys& seen, int, const Gradient& gradient,
                        const float (&values)[Count], float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = seen.begin[r] != SeenKeys::none;
      kernel.template store_row<2 * Count>(gradient, kernel.row_of(gradient, there ? seen.begin[r] : 0), there, values,
                                           factor, r);
    }
  }
};

}  // namespace longstride::kernels::cuda::sm90
