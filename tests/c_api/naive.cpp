#include "tests/c_api/naive.h"

#include "kernels/attention/naive.h"

namespace {

template <class A>
void compute(const naive_problem& p, const naive_result& r) {
  longstride::kernels::NaiveAttention<A> naive({p.batch, p.queries, p.keys, p.heads, p.key_size, p.value_size,
                                                1 / std::sqrt(static_cast<double>(p.key_size)), p.q, p.k, p.v, p.dout,
                                                p.distances, p.tables, p.table, p.content_bias, p.position_bias,
                                                r.dtable != nullptr, false, p.sink});
  naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) {
    std::vector<longstride::kernels::NaivePair<A>> pairs;
    const std::int64_t position = p.keys - p.queries + i;
    for (std::int64_t j = 0; j < (p.ahead ? p.keys : position + 1); ++j)
      if (const auto weight = static_cast<A>(p.weight(p.of, s, h, i, j)); weight > 0)
        pairs.push_back({j, p.label != nullptr ? p.label(p.of, s, h, i, j) : position - j, weight,
                         static_cast<A>(weight < 1 ? p.slope : 0)});
    return pairs;
  });
  const auto copy = [](const std::vector<A>& from, double* to) {
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
  copy(naive.out.dsink, r.dsink);
}

}  // namespace

void naive_attention(const naive_problem* problem, arithmetic type, const naive_result* result) {
  if (type == in_f32) compute<float>(*problem, *result);
  if (type == in_f64) compute<double>(*problem, *result);
  if (type == in_long_double) compute<long double>(*problem, *result);
}
