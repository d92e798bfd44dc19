#include "tests/c_api/naive.h"

#include "kernels/attention/naive.h"
#include "kernels/scan/naive.h"

namespace {

template <class A>
void copy(const std::vector<A>& from, double* to) {
  for (std::size_t i = 0; to != nullptr && i < from.size(); ++i) to[i] = static_cast<double>(from[i]);
}

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

template <class A>
void scan(const naive_scan_problem& p, naive_scan_result& r) {
  const auto out = longstride::kernels::NaiveScanner<A>({.form = static_cast<longstride::kernels::ScanForm>(p.form),
                                                         .batch = p.batch,
                                                         .n = p.n,
                                                         .heads = p.heads,
                                                         .key_size = p.key_size,
                                                         .value_size = p.value_size,
                                                         .normalised = p.normalised != 0,
                                                         .both = p.both != 0,
                                                         .channels = p.decay == 2,
                                                         .q = p.q,
                                                         .k = p.k,
                                                         .v = p.v,
                                                         .decay = p.decays,
                                                         .beta = p.beta,
                                                         .first_state = p.first_state,
                                                         .begin = p.begin,
                                                         .dout = p.dout,
                                                         .dlast_state = p.dlast_state})
                       .run();
  copy(out.o, r.o);
  copy(out.last_state, r.last_state);
  copy(out.dq, r.dq);
  copy(out.dk, r.dk);
  copy(out.dv, r.dv);
  copy(out.ddecay, r.ddecay);
  copy(out.dbeta, r.dbeta);
  copy(out.dfirst_state, r.dfirst_state);
  r.summand = static_cast<double>(out.summand);
}

}  // namespace

void naive_attention(const naive_problem* problem, arithmetic type, const naive_result* result) {
  if (type == in_f32) compute<float>(*problem, *result);
  if (type == in_f64) compute<double>(*problem, *result);
  if (type == in_long_double) compute<long double>(*problem, *result);
}

void naive_scan(const naive_scan_problem* problem, arithmetic type, naive_scan_result* result) {
  if (type == in_f32) scan<float>(*problem, *result);
  if (type == in_f64) scan<double>(*problem, *result);
  if (type == in_long_double) scan<long double>(*problem, *result);
}
