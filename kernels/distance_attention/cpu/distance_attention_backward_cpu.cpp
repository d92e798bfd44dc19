// A thread computes all blocks of one (sequence, head), which alone write its dq, dk and dv. What it adds to gradients
// of parameters goes into rows of its own, which are added in order at the end.
#include "kernels/distance_attention/cpu/query_block.h"

namespace longstride::kernels::cpu {
namespace {

constexpr std::int64_t lanes = block_queries;

// One thread's matrices; rows of queries and gradients of keys are padded to whole vectors.
template <class T>
struct BackwardSpace : ScoreSpace<T> {
  T *dout, *dprobability, *dcontent, *dposition;  // (d_v, queries), (keys, queries), (d, queries) twice
  T *content_rows, *position_rows, *dout_rows;    // (queries, d), (queries, d), (queries, d_v)
  T *dk, *dv;                                     // (n_k, d), (n_k, d_v)
  std::int64_t key_ld, value_ld;

  BackwardSpace(const DistanceAttentionBackwardArgs& args, Carver& carver) : ScoreSpace<T>(args.scores, carver) {
    const std::int64_t size = args.scores.q.size(3), n_k = args.scores.k.size(1);
    key_ld = padded<T>(size);
    value_ld = padded<T>(args.v.size(3));
    dout = carver.take<T>(args.v.size(3) * lanes);
    dprobability = carver.take<T>(most_keys(args.scores) * lanes);
    dcontent = carver.take<T>(size * lanes);
    dposition = carver.take<T>(size * lanes);
    content_rows = carver.take<T>(lanes * key_ld);
    position_rows = carver.take<T>(lanes * key_ld);
    dout_rows = carver.take<T>(lanes * value_ld);
    dk = carver.take<T>(n_k * key_ld);
    dv = carver.take<T>(n_k * value_ld);
  }
};

// What one (sequence, head) adds to gradients of parameters.
template <class T>
struct HeadSums {
  T *table, *content_bias, *position_bias, *span;  // (distances, padded d), (d), (d), (1)

  HeadSums(const DistanceAttentionBackwardArgs& args, Carver& carver) {
    const std::int64_t size = args.scores.q.size(3);
    table = carver.take<T>(args.dtable.given() ? args.dtable.size(0) * padded<T>(size) : 0);
    content_bias = carver.take<T>(size);
    position_bias = carver.take<T>(size);
    span = carver.take<T>(1);
  }
};

template <class T>
class HeadBackward {
 public:
  HeadBackward(const DistanceAttentionBackwardArgs& args, const DistanceHead<T>& head, const BackwardSpace<T>& space,
               const HeadSums<T>& sums)
      : args_(args),
        head_(head),
        space_(space),
        sums_(sums),
        kept_(args.scores),
        keep_scale_(T(1) / (T(1) - static_cast<T>(args.scores.dropout.p))),
        v_(rows_of<const T>(args.v, head.sequence, head.head)),
        o_(rows_of<const T>(args.o, head.sequence, head.head)),
        dout_(rows_of<const T>(args.dout, head.sequence, head.head)),
        lse_(args.lse.as<const T>() + (head.sequence * args.scores.q.size(2) + head.head) * head.n_q) {
    space_.set_weights(head_);
    std::fill(space_.dk, space_.dk + head_.n_k * space_.key_ld, T(0));
    std::fill(space_.dv, space_.dv + head_.n_k * space_.value_ld, T(0));
    if (args_.dtable.given()) std::fill(sums_.table, sums_.table + args_.dtable.size(0) * space_.key_ld, T(0));
    std::fill(sums_.content_bias, sums_.content_bias + head_.q.size, T(0));
    std::fill(sums_.position_bias, sums_.position_bias + head_.q.size, T(0));
    *sums_.span = 0;
  }

  void run() {
    for (std::int32_t b = 0; b < head_.blocks(); ++b) {
      const QueryBlock block(head_, b);
      if (block.count > 0) add_block(block);
    }
    *sums_.span *= static_cast<T>(args_.scores.longest_span / std::max(args_.scores.ramp, 1e-30));
    const auto dk = rows_of<T>(args_.dk, head_.sequence, head_.head);
    const auto dv = rows_of<T>(args_.dv, head_.sequence, head_.head);
    for (std::int32_t j = 0; j < head_.n_k; ++j) {
      std::copy_n(space_.dk + j * space_.key_ld, dk.size, dk.at(j));
      std::copy_n(space_.dv + j * space_.value_ld, dv.size, dv.at(j));
    }
  }

 private:
  void add_block(const QueryBlock& block) {
    compute_scores(head_, block, space_);
    load_rows(block);
    const std::int32_t first = block.in.position(block.key_begin);
    multiply<Into::zero, T>({v_.at(first), head_.step * v_.stride, 1}, space_.dout, lanes, space_.dprobability, lanes,
                            block.keys, lanes, v_.size);
    to_score_gradients(block);
    // `scores` holds P, with the dropped ones 0, and `dprobability` dS.
    multiply<Into::sum, T>({space_.scores, lanes, 1}, space_.dout_rows, space_.value_ld,
                           space_.dv + first * space_.value_ld, head_.step * space_.value_ld, block.keys,
                           space_.value_ld, lanes);
    multiply<Into::sum, T>({space_.dprobability, lanes, 1}, space_.content_rows, space_.key_ld,
                           space_.dk + first * space_.key_ld, head_.step * space_.key_ld, block.keys, space_.key_ld,
                           lanes);
    multiply<Into::zero, T>({head_.k.at(first), 1, head_.step * head_.k.stride}, space_.dprobability, lanes,
                            space_.dcontent, lanes, head_.q.size, lanes, block.keys);
    std::fill(space_.dposition, space_.dposition + head_.q.size * lanes, T(0));
    if (head_.table != nullptr && block.keys > 0) add_distances(block);
    store_queries(block);
  }

  // Rows of queries, with the scale, and of the output's gradient.
  void load_rows(const QueryBlock& block) const {
    std::fill(space_.content_rows, space_.content_rows + lanes * space_.key_ld, T(0));
    std::fill(space_.position_rows, space_.position_rows + lanes * space_.key_ld, T(0));
    std::fill(space_.dout_rows, space_.dout_rows + lanes * space_.value_ld, T(0));
    std::fill(space_.dout, space_.dout + v_.size * lanes, T(0));
    for (std::int32_t r = 0; r < block.count; ++r) {
      for (std::int64_t c = 0; c < head_.q.size; ++c) {
        space_.content_rows[r * space_.key_ld + c] = space_.content[c * lanes + r];
        space_.position_rows[r * space_.key_ld + c] = space_.position[c * lanes + r];
      }
      const T* dout = dout_.at(block.query(head_.n_q, head_.n_k, r));
      for (std::int64_t c = 0; c < v_.size; ++c)
        space_.dout_rows[r * space_.value_ld + c] = space_.dout[c * lanes + r] = dout[c];
    }
  }

  void to_score_gradients(const QueryBlock& block) const {
    T lse[block_queries], delta[block_queries] = {}, dspan[block_queries] = {};
    std::fill(lse, lse + block_queries, std::numeric_limits<T>::infinity());  // no key, or no query: P = 0
    for (std::int32_t r = 0; r < block.count; ++r) {
      const std::int32_t i = block.query(head_.n_q, head_.n_k, r);
      if (lse_[i] > -std::numeric_limits<T>::infinity()) lse[r] = lse_[i];
      for (std::int64_t c = 0; c < v_.size; ++c) delta[r] += dout_.at(i)[c] * o_.at(i)[c];
    }
    const std::uint32_t step = kept_.step_word();
    for (std::int32_t b = 0; b < block.keys; ++b) {
      T keep[block_queries];
      std::fill(keep, keep + block_queries, T(1));
      if (kept_.limit > 0) draw(block, b, step, keep);
      T* s = space_.scores + b * lanes;
      T* ds = space_.dprobability + b * lanes;
      const T* w = space_.weights_of(block, b);
      for (std::int32_t r = 0; r < block_queries; ++r) {
        const T unweighted = w[r] > 0 ? exp_of(s[r] - lse[r]) : T(0);
        const T along = unweighted * (ds[r] * keep[r] - delta[r]);
        dspan[r] += w[r] < 1 ? along : T(0);
        ds[r] = w[r] * along;
        s[r] = w[r] * unweighted * keep[r];
      }
    }
    for (const T d : dspan) *sums_.span += d;
  }

  void draw(const QueryBlock& block, std::int32_t b, std::uint32_t step, T (&keep)[block_queries]) const {
    const std::int32_t key = block.in.position(block.key_begin + b);
    for (std::int32_t r = 0; r < block.count; ++r) {
      const std::uint64_t row = kept_.row(head_.sequence, head_.head, block.query(head_.n_q, head_.n_k, r));
      keep[r] = kept_.keeps(row, key, step) ? keep_scale_ : T(0);
    }
  }

  // The gradients through T: dS summed by distance, times T and times the queries.
  void add_distances(const QueryBlock& block) const {
    const TableRows<T> rows(head_, block);
    std::fill(space_.by_distance, space_.by_distance + (rows.own + rows.rest) * lanes, T(0));
    each_distance(rows, block, [&](std::int64_t row, std::int32_t r, std::int32_t b) {
      space_.by_distance[row * lanes + r] += space_.dprobability[b * lanes + r];
    });
    rows.each([&](std::int64_t first, std::int64_t step, std::int64_t at, std::int64_t count) {
      const T* by_distance = space_.by_distance + at * lanes;
      multiply<Into::sum, T>({head_.table + first * head_.table_stride, 1, step * head_.table_stride}, by_distance,
                             lanes, space_.dposition, lanes, head_.q.size, lanes, count);
      if (!args_.dtable.given()) return;
      multiply<Into::sum, T>({by_distance, lanes, 1}, space_.position_rows, space_.key_ld,
                             sums_.table + first * space_.key_ld, step * space_.key_ld, count, space_.key_ld, lanes);
    });
  }

  void store_queries(const QueryBlock& block) const {
    const auto dq = rows_of<T>(args_.dq, head_.sequence, head_.head);
    for (std::int32_t r = 0; r < block.count; ++r) {
      T* to = dq.at(block.query(head_.n_q, head_.n_k, r));
      for (std::int64_t c = 0; c < dq.size; ++c)
        to[c] = head_.scale * (space_.dcontent[c * lanes + r] + space_.dposition[c * lanes + r]);
    }
    for (std::int64_t c = 0; c < dq.size; ++c) {
      T content = 0, position = 0;
      for (std::int32_t r = 0; r < block.count; ++r) {
        content += space_.dcontent[c * lanes + r];
        position += space_.dposition[c * lanes + r];
      }
      sums_.content_bias[c] += head_.scale * content;
      sums_.position_bias[c] += head_.scale * position;
    }
  }

  const DistanceAttentionBackwardArgs& args_;
  const DistanceHead<T>& head_;
  const BackwardSpace<T>& space_;
  const HeadSums<T>& sums_;
  KeptProbabilities kept_;
  T keep_scale_;
  HeadRows<const T> v_, o_, dout_;
  const T* lse_;
};

template <class T, class Space>
std::size_t bytes_of_one(const DistanceAttentionBackwardArgs& args) {
  Carver carver(nullptr);
  const Space counted(args, carver);
  return carver.used();
}

template <class T>
HeadSums<T> sums_of(const DistanceAttentionBackwardArgs& args, std::int64_t unit) {
  const std::size_t bytes = bytes_of_one<T, HeadSums<T>>(args);
  Carver carver(args.scratch.as<std::byte>() + static_cast<std::size_t>(unit) * bytes);
  return HeadSums<T>(args, carver);
}

// Adds the sums of all sequences, in order, to the gradients of parameters.
template <class T>
void add_sums(const DistanceAttentionBackwardArgs& args) {
  const std::int64_t heads = args.scores.q.size(2), units = args.scores.q.size(0) * heads, size = args.scores.q.size(3);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const HeadSums<T> sums = sums_of<T>(args, unit);
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
      const T* from = sums_of<T>(args, unit).table + t * ld;
      T* to = args.dtable.as<T>() + t * args.dtable.stride(0) + unit % heads % tables * args.dtable.stride(1);
      for (std::int64_t c = 0; c < size; ++c) to[c] += from[c];
    }
}

template <class T>
void run(const DistanceAttentionBackwardArgs& args) {
  const std::int64_t heads = args.scores.q.size(2), units = args.scores.q.size(0) * heads;
  const std::size_t bytes = bytes_of_one<T, BackwardSpace<T>>(args);
  auto* memory = args.scratch.as<std::byte>() + static_cast<std::size_t>(units) * bytes_of_one<T, HeadSums<T>>(args);
#pragma omp parallel num_threads(static_cast <int>(threads_of(units)))
  {
    Carver carver(memory + static_cast<std::size_t>(omp_get_thread_num()) * bytes);
    const BackwardSpace<T> space(args, carver);
#pragma omp for schedule(dynamic)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const DistanceHead<T> head(args.scores, unit / heads, unit % heads);
      HeadBackward<T>(args, head, space, sums_of<T>(args, unit)).run();
    }
  }
  add_sums<T>(args);
}

template <class T>
std::size_t scratch_bytes(const DistanceAttentionBackwardArgs& args) {
  const std::int64_t units = args.scores.q.size(0) * args.scores.q.size(2);
  return static_cast<std::size_t>(units) * bytes_of_one<T, HeadSums<T>>(args) +
         static_cast<std::size_t>(threads_of(units)) * bytes_of_one<T, BackwardSpace<T>>(args);
}

}  // namespace

std::size_t distance_attention_scratch_bytes(const DistanceAttentionBackwardArgs& args) {
  return args.v.dtype() == Dtype::f64 ? scratch_bytes<double>(args) : scratch_bytes<float>(args);
}

void distance_attention_backward(const DistanceAttentionBackwardArgs& args, const Launch&) {
  with_float_type(args.v.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace longstride::kernels::cpu
