// A thread computes all tiles of one (sequence, head), which alone write its dq, dk and dv. What it adds to gradients
// of parameters goes into rows of its own, which are added in order at the end.
#include <vector>

#include "kernels/attention/cpu/query_tile.h"
#include "kernels/attention/cpu/tile_pairs.h"
#include "kernels/attention/term/distance_cpu.h"

namespace longstride::kernels::cpu {
namespace {

constexpr TileShape shape{};

std::int64_t units_of(const DistanceScores& s) { return s.q.size(0) * s.q.size(2); }
// The number of threads that scratch must serve.
std::int64_t threads_of(const DistanceScores& s) { return std::min<std::int64_t>(omp_get_max_threads(), units_of(s)); }

// One thread's tiles.
template <class T>
struct ForwardThread {
  ForwardSpace<T> tiles;
  DistanceSpace<T> term;
  ForwardThread(const DistanceAttentionArgs& args, Carver& carver)
      : tiles(shape, args.scores.q, args.v, carver), term(args.scores, shape, false, carver) {}

  void compute(const DistanceAttentionArgs& args, std::int64_t sequence, std::int64_t head) const {
    const DistanceScores& s = args.scores;
    DistanceTerm<T> of_pairs(s, sequence, head, term);
    const ForwardRows<T> rows(args, s.q, s.k, sequence, head);
    for (std::int32_t c = 0; c < of_pairs.classes(); ++c) {
      of_pairs.enter(c);
      const RowSet queries = of_pairs.queries();
      for (std::int32_t t = 0; t < tiles_of(queries, shape.queries); ++t) {
        const QueryTile<T> tile(rows, queries, t, shape, static_cast<T>(s.scale), of_pairs.content_bias(), tiles);
        tile.start();
        tile.attend(of_pairs, of_pairs.keys(), of_pairs.walk_keys(t, shape));
        tile.finish(nullptr);
      }
    }
  }
};

template <class T>
struct BackwardThread {
  BackwardSpace<T> tiles;
  DistanceSpace<T> term;
  BackwardThread(const DistanceAttentionBackwardArgs& args, Carver& carver)
      : tiles(shape, args.scores.q, args.v, carver), term(args.scores, shape, true, carver) {}

  void compute(const DistanceAttentionBackwardArgs& args, const T* delta, const DistanceSums<T>& sums,
               std::int64_t sequence, std::int64_t head) const {
    const DistanceScores& s = args.scores;
    DistanceTerm<T> of_pairs(s, sequence, head, term, &sums);
    const BackwardRows<T> rows(args, s.q, s.k, delta, sequence, head);
    for (std::int64_t j = 0; j < s.k.size(1); ++j) {
      std::fill_n(rows.dk.at(j), rows.dk.size, T(0));
      std::fill_n(rows.dv.at(j), rows.dv.size, T(0));
    }
    for (std::int32_t c = 0; c < of_pairs.classes(); ++c) {
      of_pairs.enter(c);
      const RowSet queries = of_pairs.queries();
      TilePairs<T, DistanceTerm<T>> pairs(rows, of_pairs, queries, of_pairs.keys(), shape, static_cast<T>(s.scale),
                                          true, false, tiles);
      for (std::int32_t t = 0; t < tiles_of(queries, shape.queries); ++t)
        pairs.walk_keys(t, of_pairs.walk_keys(t, shape), 0, true);
    }
  }
};

template <class Space, class Args>
std::size_t bytes_of_thread(const Args& args) {
  Carver carver(nullptr);
  const Space counted(args, carver);
  return carver.used();
}

// Scratch of a call: D of all rows, sums of every (sequence, head), and every thread's tiles.
template <class T>
struct BackwardScratch {
  T* delta;
  std::vector<DistanceSums<T>> sums;
  std::byte* threads;
  std::size_t thread, bytes;

  BackwardScratch(const DistanceAttentionBackwardArgs& args, void* memory)
      : thread(bytes_of_thread<BackwardThread<T>>(args)) {
    Carver carver(memory);
    delta = carver.take<T>(args.lse.shape().count());
    for (std::int64_t unit = 0; unit < units_of(args.scores); ++unit)
      sums.emplace_back(args.scores, args.dtable.given(), carver);
    threads = static_cast<std::byte*>(memory) + carver.used();
    bytes = carver.used() + static_cast<std::size_t>(threads_of(args.scores)) * thread;
  }
};

// Adds the sums of all sequences, in order, to the gradients of parameters.
template <class T>
void add_sums(const DistanceAttentionBackwardArgs& args, const std::vector<DistanceSums<T>>& all) {
  const std::int64_t heads = args.scores.q.size(2), units = units_of(args.scores), size = args.scores.q.size(3);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const DistanceSums<T>& sums = all[static_cast<std::size_t>(unit)];
    const std::int64_t head = unit % heads;
    for (std::int64_t c = 0; c < size; ++c) {
      if (args.dcontent_bias.given()) args.dcontent_bias.as<T>()[head * size + c] += sums.content_bias[c];
      if (args.dposition_bias.given()) args.dposition_bias.as<T>()[head * size + c] += sums.position_bias[c];
    }
    if (args.dspan.given()) args.dspan.as<T>()[head] += *sums.span;
  }
  if (!args.dtable.given()) return;
  const std::int64_t distances = args.dtable.size(0), tables = args.dtable.size(1), ld = padded<T>(size);
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < distances; ++t)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const T* from = all[static_cast<std::size_t>(unit)].table + t * ld;
      T* to = args.dtable.as<T>() + t * args.dtable.stride(0) + unit % heads % tables * args.dtable.stride(1);
      for (std::int64_t c = 0; c < size; ++c) to[c] += from[c];
    }
}

// f(a thread's tiles, unit) for all (sequence, head)s.
template <class Space, class Args, class F>
void each_unit(const Args& args, std::byte* memory, F&& f) {
  const std::size_t bytes = bytes_of_thread<Space>(args);
#pragma omp parallel num_threads(static_cast <int>(threads_of(args.scores)))
  {
    Carver carver(memory + static_cast<std::size_t>(omp_get_thread_num()) * bytes);
    const Space space(args, carver);
#pragma omp for schedule(dynamic)
    for (std::int64_t unit = 0; unit < units_of(args.scores); ++unit) f(space, unit);
  }
}

}  // namespace

std::size_t distance_attention_scratch_bytes(const DistanceAttentionArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.v.dtype(), [&](auto zero) { bytes = bytes_of_thread<ForwardThread<decltype(zero)>>(args); });
  return static_cast<std::size_t>(threads_of(args.scores)) * bytes;
}

std::size_t distance_attention_scratch_bytes(const DistanceAttentionBackwardArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.v.dtype(), [&](auto zero) { bytes = BackwardScratch<decltype(zero)>(args, nullptr).bytes; });
  return bytes;
}

void distance_attention(const DistanceAttentionArgs& args, const Launch&) {
  const std::int64_t heads = args.scores.q.size(2);
  with_float_type(args.v.dtype(), [&](auto zero) {
    each_unit<ForwardThread<decltype(zero)>>(
        args, args.scratch.as<std::byte>(),
        [&](const auto& space, std::int64_t unit) { space.compute(args, unit / heads, unit % heads); });
  });
}

void distance_attention_backward(const DistanceAttentionBackwardArgs& args, const Launch&) {
  const std::int64_t n_q = args.scores.q.size(1), heads = args.scores.q.size(2);
  with_float_type(args.v.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const BackwardScratch<T> scratch(args, args.scratch.data());
    each_unit<BackwardThread<T>>(args, scratch.threads, [&](const auto& space, std::int64_t unit) {
      const auto o = rows_of<const T>(args.o, unit / heads, unit % heads),
                 dout = rows_of<const T>(args.dout, unit / heads, unit % heads);
      for (std::int64_t i = 0; i < n_q; ++i) {
        T& delta = scratch.delta[unit * n_q + i] = 0;
        for (std::int64_t c = 0; c < o.size; ++c) delta += dout.at(i)[c] * o.at(i)[c];  // in the order of dP, to cancel
      }
      space.compute(args, scratch.delta, scratch.sums[static_cast<std::size_t>(unit)], unit / heads, unit % heads);
    });
    add_sums(args, scratch.sums);
  });
}

}  // namespace longstride::kernels::cpu
