// Launches of the forward kernel: one for each pass of a plan, with the tiling that suits its head sizes and keys.
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/forward/forward_kernel.cuh"
#include "kernels/attention/term/label_products.h"
#include "kernels/base/gpu_kind.h"
#include "kernels/merge_parts/merge_parts.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

// A pass of every head.
struct HeadPasses {
  Geometry geometry;
  bool resumes = false;
  LabelMatrices labels;
  std::int32_t shares = 1;  // blocks of a task; their results follow each other in o and lse
};

template <class Problem>
Problem empty_problem(const AttentionArgs& args, const HeadPasses& passes) {
  if constexpr (std::is_same_v<Problem, ForwardProblemOfLabels>) {
    Problem problem{{}, LabelsView(args.labels, passes.labels, args.k.size(1))};
    problem.labels.shares = Shares(passes.shares, args.q.size(0), args.k.size(1));
    return problem;
  } else {
    return {};
  }
}

template <int KeySize, int ValueSize, KeysPerQuery KeyCount, bool Pieces, class T, class Term = NoTerm>
void launch_pass(const AttentionArgs& args, const HeadPasses& passes, const Launch& launch) {
  using F = Forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>;
  const Geometry& geometry = passes.geometry;
  auto problem = empty_problem<typename F::Problem>(args, passes);
  std::copy_n(geometry.pass_of, Geometry::most_heads, problem.pass_of);
  problem.heads = Divisor(geometry.heads);
  problem.batch = Divisor(static_cast<std::int32_t>(args.lse.size(0)));
  problem.heads_per_key = Divisor(static_cast<std::int32_t>(args.q.size(2) / args.k.size(2)));
  problem.n = geometry.n;
  problem.rate = static_cast<float>(args.scale) * log2_e;
  problem.resumes = passes.resumes;
  problem.o_data = args.o.data();
  problem.value_size = static_cast<std::int32_t>(args.v.size(3));
  for (int d = 0; d < 3; ++d) problem.o_stride[d] = args.o.stride(d);
  problem.lse = args.lse.as<float>();
  problem.sink = passes.resumes ? nullptr : args.sink.as<const float>();
  problem.bounds = BoundsView(args.bounds);
  if constexpr (F::listed) problem.lists = ListsView::of_queries(args.lists);
  RowSetKinds kinds;
  const auto queries = static_cast<std::int32_t>(args.q.size(1));
  std::int64_t tiles = 0;  // maximum over the heads
  for (int p = 0; p < geometry.passes; ++p) {
    const PassGeometry& pass = geometry.pass[p];
    PassShape& shape = problem.pass[p];
    shape.step = pass.queries.run >= pass.queries.period ? 1 : pass.queries.period;
    shape.kind = kinds.number_of(pass.queries);
    shape.parts = pass.parts;
    shape.tiles = tiles_in(pass.queries.length, F::queries);
    shape.classes = Divisor(pass.classes);
    for (int i = 0; i < pass.parts; ++i) shape.part[i] = PartShape(pass.part[i], kinds.number_of(pass.part[i].keys));
    tiles = std::max(tiles, std::int64_t{pass.classes} * shape.tiles);
  }
  for (int i = 0; i < kinds.count(); ++i) {
    if (kinds[i].run >= kinds[i].period || kinds[i].run == 1) {  // queries may have it
      problem.q[i] = row_maps(args.q, kinds[i], queries, 64, KeySize);
      problem.o[i] = row_maps(args.o, kinds[i], queries, 64, ValueSize);
    }
    problem.k[i] = key_maps(args.k, kinds[i], geometry.n, F::keys, KeySize, Pieces);
    problem.v[i] = key_maps(args.v, kinds[i], geometry.n, F::keys, ValueSize, Pieces);
  }
  if constexpr (Pieces) {
    problem.k_pieces = piece_maps(args.k, geometry.n, KeySize);
    problem.v_pieces = piece_maps(args.v, geometry.n, ValueSize);
  }
  auto* const kernel = forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>;
  allow_shared(kernel, F::shared_bytes);
  problem.tasks = tiles * args.lse.size(0) * args.q.size(2);
  const auto blocks = static_cast<unsigned>(
      F::tiling.specialised ? std::min<std::int64_t>(problem.tasks, multiprocessors()) : problem.tasks);
  run("attention_sm90", kernel, {blocks, F::tiling.threads(), F::shared_bytes}, launch, problem);
}

// The number of keys to which the pass's query `entry` may attend.
std::int64_t keys_of(const PassGeometry& pass, std::int32_t entry, std::int32_t n) {
  std::int64_t keys = 0;
  for (int i = 0; i < pass.parts; ++i) {
    const Interval interval = pass.part[i].interval(pass.part[i].keys, std::min(pass.queries.position(entry), n - 1));
    keys += std::max(interval.end - interval.begin, 0);
  }
  return keys;
}

// Where a larger tiling is faster (docs/notes/2026-11/kernels.md): many keys of the last query, and thousands of the
// one in the middle, or half as many if some are summary rows, whose copies take longer.
KeysPerQuery keys_per_query(const Geometry& geometry) {
  constexpr std::int64_t most_few = 384, least_thousands = 3072;
  std::int64_t last = 0, middle = 0;
  for (int p = 0; p < geometry.passes; ++p) {
    const PassGeometry& pass = geometry.pass[p];
    last = std::max(last, keys_of(pass, pass.queries.length - 1, geometry.n));
    const std::int64_t keys = keys_of(pass, pass.queries.length / 2, geometry.n);
    middle = std::max(middle, is_summary(pass.part[pass.parts - 1].keys) ? 2 * keys : keys);
  }
  if (last <= most_few) return KeysPerQuery::few;
  return middle < least_thousands ? KeysPerQuery::many : KeysPerQuery::thousands;
}

template <KeysPerQuery KeyCount, class T>
void launch_with_sizes(const AttentionArgs& args, const HeadPasses& passes, const Launch& launch) {
  const std::int64_t key_size = args.q.size(3), value_size = args.v.size(3);
  // A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros and does not write
  // them. Pieces need rows of 64 columns.
  const auto with_sizes = [&](auto pieces) {
    if constexpr (!pieces() && KeyCount != KeysPerQuery::listed)
      if (key_size <= 32 && value_size <= 32) return launch_pass<32, 32, KeyCount, false, T>(args, passes, launch);
    if (key_size <= 64 && value_size <= 64) return launch_pass<64, 64, KeyCount, pieces(), T>(args, passes, launch);
    if constexpr (KeyCount == KeysPerQuery::many) {
      if (key_size <= 64) return launch_pass<64, 128, KeyCount, pieces(), T>(args, passes, launch);
      return launch_pass<128, 128, KeyCount, pieces(), T>(args, passes, launch);
    }
    if constexpr (KeyCount == KeysPerQuery::listed) launch_pass<128, 128, KeyCount, pieces(), T>(args, passes, launch);
  };
  if constexpr (KeyCount != KeysPerQuery::thousands && KeyCount != KeysPerQuery::listed)
    if (needs_pieces(passes.geometry)) return with_sizes(std::true_type{});
  with_sizes(std::false_type{});
}

template <class T>
void launch_pass(const AttentionArgs& args, const HeadPasses& passes, const Launch& launch) {
  if (args.labels.given() || args.plan->queries != args.plan->n)
    return launch_pass<64, 64, KeysPerQuery::thousands, false, T, LabelsTerm>(args, passes, launch);
  // Sizes above 64 have one tiling, and there is none for thousands in pieces.
  const bool is_large = std::max(args.q.size(3), args.v.size(3)) > 64;
  switch (args.lists.given() ? KeysPerQuery::listed : is_large ? KeysPerQuery::many : keys_per_query(passes.geometry)) {
    case KeysPerQuery::listed:
      return launch_with_sizes<KeysPerQuery::listed, T>(args, passes, launch);
    case KeysPerQuery::few:
      return launch_with_sizes<KeysPerQuery::few, T>(args, passes, launch);
    case KeysPerQuery::thousands:
      if (!needs_pieces(passes.geometry)) return launch_with_sizes<KeysPerQuery::thousands, T>(args, passes, launch);
      [[fallthrough]];
    case KeysPerQuery::many:
      return launch_with_sizes<KeysPerQuery::many, T>(args, passes, launch);
  }
}

}  // namespace

void attention(const AttentionArgs& whole, const AttentionChoice& choice, const Launch& launch) {
  AttentionArgs args = whole;
  const bool is_shared = choice.query_shares > 1 && whole.o.contiguous();  // as merge_parts wants it
  if (is_shared) {
    auto* const parts = whole.scratch.as<std::byte>() + (choice.sums_bytes - choice.share_bytes);
    const std::int64_t batch = choice.query_shares * whole.q.size(0);
    args.o = Tensor(parts, whole.o.dtype(), {batch, whole.o.size(1), whole.o.size(2), whole.o.size(3)});
    args.lse = Tensor(parts + args.o.bytes(), Dtype::f32, {batch, whole.lse.size(1), whole.lse.size(2)});
  }
  for (int number = 0; number < passes_in(*args.plan); ++number) {
    HeadPasses passes;
    passes.resumes = number > 0;
    if (is_shared) passes.shares = choice.query_shares;
    passes.labels = LabelMatrices(args.labels, args.q, args.scale, args.scratch.as<float>());
    geometry_of(*args.plan, number, passes.geometry);
    with_gpu_type(args.q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      if (args.labels.given()) portable::label_products<T>(passes.labels, launch);
      if constexpr (!std::is_same_v<T, float>) launch_pass<T>(args, passes, launch);
    });
  }
  const auto of_shares = [&](const Tensor& lse) {
    return lse.reshape({choice.query_shares, whole.q.size(0), lse.size(1), lse.size(2)});
  };
  if (is_shared) merge_parts({args.o, of_shares(args.lse), whole.o, whole.lse}, launch);
}

}  // namespace longstride::kernels::cuda::sm90
