#include "tests/c_api/naive.h"

#include "kernels/attention/naive.h"

namespace {

using longstride::kernels::NaiveAttention;

// Row i with a sink: its output and lse are those with one more logit, of which the others' gradients follow.
template <class A>
void add_sink(NaiveAttention<A>& naive, const naive_problem& p, std::int64_t s, std::int64_t h, std::int64_t i,
              std::vector<double>& dsink, typename NaiveAttention<A>::Pairs& pairs) {
  naive.forward(s, h, i, pairs);
  const A sink = static_cast<A>(p.sink[h]);
  A& lse = naive.out.lse[static_cast<std::size_t>((s * p.heads + h) * p.queries + i)];
  const A top = std::max(lse, sink), with = top + std::log(std::exp(lse - top) + std::exp(sink - top));
  const std::int64_t row = ((s * p.queries + i) * p.heads + h) * p.value_size;
  A delta = 0;
  for (std::int64_t d = 0; d < p.value_size; ++d) {
    A& o = naive.out.o[static_cast<std::size_t>(row + d)];
    o *= std::exp(lse - with);
    delta += o * static_cast<A>(p.dout[row + d]);
  }
  lse = with;
  dsink[static_cast<std::size_t>(h)] -= static_cast<double>(std::exp(sink - with) * delta);
  naive.backward(s, h, i, pairs);
  for (const auto& pair : pairs) naive.add_to_key(s, h, i, pair);
}

template <class A>
void compute(const naive_problem& p, const naive_result& r) {
  NaiveAttention<A> naive({p.batch, p.queries, p.keys, p.heads, p.key_size, p.value_size,
                           1 / std::sqrt(static_cast<double>(p.key_size)), p.q, p.k, p.v, p.dout, p.distances, p.tables,
                           p.table, p.content_bias, p.position_bias, r.dtable != nullptr});
  const auto pairs_of = [&](std::int64_t s, std::int64_t h, std::int64_t i) {
    typename NaiveAttention<A>::Pairs pairs;
    const std::int64_t position = p.keys - p.queries + i;
    for (std::int64_t j = 0; j < (p.ahead ? p.keys : position + 1); ++j)
      if (const auto weight = static_cast<A>(p.weight(p.of, s, h, i, j)); weight > 0)
        pairs.push_back({j, position - j, weight, static_cast<A>(weight < 1 ? p.slope : 0)});
    return pairs;
  };
  std::vector<double> dsink(static_cast<std::size_t>(p.heads));
  if (p.sink == nullptr) naive.run(pairs_of);
  for (std::int64_t row = 0; p.sink != nullptr && row < p.batch * p.heads * p.queries; ++row) {
    const std::int64_t i = row % p.queries, h = row / p.queries % p.heads, s = row / p.queries / p.heads;
    auto pairs = pairs_of(s, h, i);
    add_sink(naive, p, s, h, i, dsink, pairs);
  }
  const auto copy = [](const auto& from, double* to) {
    for (std::size_t i = 0; to != nullptr && i < from.size(); ++i) to[i] = static_cast<double>(from[i]);
  };
  copy(naive.out.o, r.o);
  copy(naive.out.lse, r.lse);
  copy(naive.out.dq, r.dq);
  copy(naive.out.dk, r.dk);
  copy(naive.out.dv, r.dv);
  copy(naive.out.dtable, r.dtable);
  copy(naive.out.dcontent_bias, r.dcontent_bias);
  copy(naive.out.dposition_bias, r.dposition_bias);
  copy(naive.out.dspan, r.dspan);
  copy(dsink, r.dsink);
}

}  // namespace

void naive_attention(const naive_problem* problem, arithmetic type, const naive_result* result) {
  if (type == in_f32) compute<float>(*problem, *result);
  if (type == in_f64) compute<double>(*problem, *result);
  if (type == in_long_double) compute<long double>(*problem, *result);
}
