#include "kernels/distance_attention/cpu/query_block.h"

namespace longstride::kernels::cpu {
namespace {

template <class T>
struct ForwardSpace : ScoreSpace<T> {
  T* out;  // (d_v, queries)

  ForwardSpace(const DistanceAttentionArgs& args, Carver& carver) : ScoreSpace<T>(args.scores, carver) {
    out = carver.take<T>(args.v.size(3) * block_queries);
  }
};

// The largest visible score of every query of a block.
template <class T>
void largest_scores(const QueryBlock& block, const ScoreSpace<T>& space, T (&largest)[block_queries]) {
  std::fill(largest, largest + block_queries, -std::numeric_limits<T>::infinity());
  for (std::int32_t b = 0; b < block.keys; ++b) {
    const T* s = space.scores + b * block_queries;
    const T* w = space.weights_of(block, b);
    for (std::int32_t r = 0; r < block_queries; ++r) largest[r] = w[r] > 0 && s[r] > largest[r] ? s[r] : largest[r];
  }
}

// scores = weight exp(score - largest) and sum = their sums; then dropped probabilities become 0.
template <class T>
void probabilities(const DistanceHead<T>& head, const QueryBlock& block, const ScoreSpace<T>& space,
                   const KeptProbabilities& kept, T keep_scale, T (&largest)[block_queries], T (&sum)[block_queries]) {
  std::fill(sum, sum + block_queries, T(0));
  const std::uint32_t step = kept.step_word();
  for (std::int32_t b = 0; b < block.keys; ++b) {
    T* s = space.scores + b * block_queries;
    const T* w = space.weights_of(block, b);
    for (std::int32_t r = 0; r < block_queries; ++r) {
      const T p = w[r] * exp_of(w[r] > 0 ? s[r] - largest[r] : T(0));
      sum[r] += p;
      s[r] = p;
    }
    if (kept.limit == 0) continue;
    const std::int32_t key = block.in.position(block.key_begin + b);
    for (std::int32_t r = 0; r < block.count; ++r) {
      const std::uint64_t row = kept.row(head.sequence, head.head, block.query(head.n_q, head.n_k, r));
      s[r] = kept.keeps(row, key, step) ? s[r] * keep_scale : T(0);
    }
  }
}

template <class T>
void compute_block(const DistanceAttentionArgs& args, const DistanceHead<T>& head, const QueryBlock& block,
                   const ForwardSpace<T>& space) {
  constexpr std::int64_t lanes = block_queries;
  if (block.count == 0) return;
  const KeptProbabilities kept(args.scores);
  T largest[block_queries], sum[block_queries];
  compute_scores(head, block, space);
  largest_scores(block, space, largest);
  probabilities(head, block, space, kept, T(1) / (T(1) - static_cast<T>(args.scores.dropout.p)), largest, sum);
  const auto v = rows_of<const T>(args.v, head.sequence, head.head);
  multiply<Into::zero, T>({v.at(block.in.position(block.key_begin)), 1, head.step * v.stride}, space.scores, lanes,
                          space.out, lanes, v.size, lanes, block.keys);
  const auto o = rows_of<T>(args.o, head.sequence, head.head);
  T* lse = args.lse.as<T>() + (head.sequence * args.scores.q.size(2) + head.head) * head.n_q;
  for (std::int32_t r = 0; r < block.count; ++r) {
    const std::int32_t i = block.query(head.n_q, head.n_k, r);
    const T share = sum[r] > 0 ? 1 / sum[r] : T(0);
    for (std::int64_t c = 0; c < o.size; ++c) o.at(i)[c] = space.out[c * lanes + r] * share;
    lse[i] = sum[r] > 0 ? largest[r] + std::log(sum[r]) : -std::numeric_limits<T>::infinity();
  }
}

std::int64_t heads_of(const DistanceScores& s) { return s.q.size(0) * s.q.size(2); }

template <class T>
std::size_t thread_bytes(const DistanceAttentionArgs& args) {
  Carver carver(nullptr);
  const ForwardSpace<T> counted(args, carver);
  return carver.used();
}

template <class T>
void run(const DistanceAttentionArgs& args) {
  const std::int64_t heads = args.scores.q.size(2), units = heads_of(args.scores);
  auto* memory = args.scratch.as<std::byte>();
  const std::size_t bytes = thread_bytes<T>(args);
#pragma omp parallel num_threads(static_cast <int>(threads_of(units)))
  {
    Carver carver(memory + static_cast<std::size_t>(omp_get_thread_num()) * bytes);
    const ForwardSpace<T> space(args, carver);
#pragma omp for schedule(dynamic)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const DistanceHead<T> head(args.scores, unit / heads, unit % heads);
      space.set_weights(head);
      for (std::int32_t b = 0; b < head.blocks(); ++b) compute_block(args, head, QueryBlock(head, b), space);
    }
  }
}

}  // namespace

std::size_t distance_attention_scratch_bytes(const DistanceAttentionArgs& args) {
  const auto threads = static_cast<std::size_t>(threads_of(heads_of(args.scores)));
  return threads * (args.v.dtype() == Dtype::f64 ? thread_bytes<double>(args) : thread_bytes<float>(args));
}

void distance_attention(const DistanceAttentionArgs& args, const Launch&) {
  with_float_type(args.v.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace longstride::kernels::cpu
