#include "framework/mixers/distance/compression/compressor.h"

#include "framework/ops/linear.h"
#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/most_used_rows/most_used_rows.h"
#include "kernels/pool_rows/pool_rows.h"

namespace longstride {

Compressor::Compressor(ParameterSet& parameters, const std::string& name, std::int64_t width, double deviation,
                       const MemoryConfig& config)
    : config_(config) {
  if (config.learns_to_compress())
    weight_ = &parameters.add(name + ".weight", {width, config.rate * width}, {deviation, 0});
}

Tensor Compressor::gathered(Context& ctx, const Tensor& evicted, Scratch& scratch) const {
  const std::int64_t batch = evicted.size(0), n = evicted.size(1), width = evicted.size(2), rate = config_.rate;
  const Tensor side_by_side = scratch.tensor({batch, n / rate, rate * width}, evicted.dtype());
  if (config_.compress == Compression::convolution) {
    ops::run(ctx, kernels::CopyRowsArgs{evicted, side_by_side.reshape({batch, n, width})});
    return side_by_side;
  }
  for (std::int64_t k = 0; k < rate; ++k)
    ops::run(ctx, kernels::CopyRowsArgs{evicted.slice(1, k * (n / rate), (k + 1) * (n / rate)),
                                        side_by_side.slice(2, k * width, (k + 1) * width)});
  return side_by_side;
}

Tensor Compressor::compress(Context& ctx, const Tensor& evicted, const Tensor& usage, Scratch& scratch) const {
  const Tensor rows =
      scratch.tensor({evicted.size(0), evicted.size(1) / config_.rate, evicted.size(2)}, evicted.dtype());
  Scratch inner(ctx);
  switch (config_.compress) {
    case Compression::mean:
    case Compression::max:
      ops::run(ctx,
               kernels::PoolRowsArgs{
                   .x = evicted, .y = rows, .rate = config_.rate, .largest = config_.compress == Compression::max});
      break;
    case Compression::most_used:
      ops::run(ctx, kernels::MostUsedRowsArgs{.usage = usage, .x = evicted, .y = rows});
      break;
    case Compression::convolution:
    case Compression::dilated: {
      Context exact = ctx.without_fp8();
      ops::linear(exact, gathered(ctx, evicted, inner), weight_->value, {}, rows);
    }
  }
  return rows;
}

void Compressor::add_gradient(Context& ctx, const Tensor& evicted, const Tensor& drows) const {
  Scratch scratch(ctx);
  ops::linear_backward_weight(ctx, drows, gathered(ctx, evicted, scratch), weight_->gradient, {});
}

}  // namespace longstride
