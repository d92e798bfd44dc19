#include "launch/bench/bench_distance.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/ops/basic.h"
#include "framework/ops/run.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride {
namespace {

using kernels::DistanceAttentionArgs;
using kernels::DistanceAttentionBackwardArgs;

Tensor row_of(const Tensor& t, std::int64_t row) { return t.slice(0, row, row + 1).reshape({t.size(1), t.size(2)}); }

}  // namespace

DistanceBench::DistanceBench(Context& ctx, const DistanceShape& s) : shape_(s), scratch_(ctx) {
  const auto heads = [&](std::int64_t n, std::int64_t size) {
    return scratch_.tensor({s.batch, n, s.heads, size}, ctx.compute);
  };
  q_ = heads(s.queries, s.key_size);
  k_ = heads(s.keys, s.key_size);
  v_ = heads(s.keys, s.value_size);
  o_ = heads(s.queries, s.value_size);
  lse_ = scratch_.tensor({s.batch, s.heads, s.queries}, ctx.exact);
  dout_ = heads(s.queries, s.value_size);
  dq_ = heads(s.queries, s.key_size);
  dk_ = heads(s.keys, s.key_size);
  dv_ = heads(s.keys, s.value_size);
  table_ = scratch_.tensor({s.keys, s.heads, s.key_size}, ctx.compute);
  dtable_ = scratch_.tensor({s.keys, s.heads, s.key_size}, ctx.exact);
  biases_ = scratch_.tensor({2, s.heads, s.key_size}, ctx.exact);
  dbiases_ = scratch_.tensor({2, s.heads, s.key_size}, ctx.exact);
}

DistanceAttentionArgs DistanceBench::forward() const {
  kernels::DistanceScores scores{.q = q_, .k = k_};
  scores.table = table_;
  scores.content_bias = row_of(biases_, 0);
  scores.position_bias = row_of(biases_, 1);
  scores.scale = 1.0 / std::sqrt(static_cast<double>(shape_.key_size));
  return {scores, v_, o_, lse_};
}

DistanceAttentionBackwardArgs DistanceBench::backward() const {
  DistanceAttentionBackwardArgs args{forward().scores, v_, o_, lse_, dout_, dq_, dk_, dv_};
  args.dtable = dtable_;
  args.dcontent_bias = row_of(dbiases_, 0);
  args.dposition_bias = row_of(dbiases_, 1);
  return args;
}

void DistanceBench::plan(Context& ctx) const {
  for (const Tensor* t : {&q_, &k_, &v_, &table_}) BenchDevice::plan_upload(ctx, *t);
  ops::run(ctx, forward());
  ops::run(ctx, backward());
}

void DistanceBench::fill(BenchDevice& device) const {
  std::uint64_t seed = 3;
  for (const Tensor* t : {&q_, &k_, &v_, &dout_, &table_, &biases_}) device.fill_normal(*t, seed++);
  ops::fill_zero(device.context(), dtable_);
  ops::fill_zero(device.context(), dbiases_);
}

void DistanceBench::report(BenchDevice& device, int repeats, BenchReport& report) const {
  const kernels::Cost forward_cost = forward().cost(), backward_cost = backward().cost();
  const std::string name = fmt::format("distance ({}, {}, {} of {}, {}/{})", shape_.batch, shape_.heads, shape_.queries,
                                       shape_.keys, shape_.key_size, shape_.value_size);
  report.line(name + " forward", device.median_ms(repeats, [&] { ops::run(device.context(), forward()); }),
              forward_cost.bytes, forward_cost.operations);
  report.line(name + " forward+backward",
              device.median_ms(repeats,
                               [&] {
                                 ops::run(device.context(), forward());
                                 ops::run(device.context(), backward());
                               }),
              forward_cost.bytes + backward_cost.bytes, forward_cost.operations + backward_cost.operations);
}

}  // namespace longstride
