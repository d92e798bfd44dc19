#include "kernels/base/gpu_kind.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/gemm/gemm.h"
#include "kernels/span_projection/span_projection_sm90.h"

namespace longstride::kernels::cuda {
namespace {

// Spans are in device memory, so the cost is that of all rows.
Cost cost_of(const Tensor& x, const Tensor& weight, const Tensor& y) {
  return {WorkKind::product, bytes_of(x, weight, y),
          2.0 * static_cast<double>(y.count()) * static_cast<double>(x.size(2))};
}

bool is_mappable(const Tensor& weight) {
  return weight.stride(1) == 1 && weight.stride(0) % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(weight.data()) % 16 == 0;
}

}  // namespace

// A part of a GPU may have too few multiprocessors for one block per panel and tile of the gradient's columns.
bool uses_panels(const DistanceScores& read, const Tensor& x, const Tensor& y) {
  return takes_panels(read, x, y) && is_hopper() && multiprocessors() >= 2 * y.size(2) / ReadRows::columns;
}

void span_projection(const SpanProjectionArgs& args, const Launch& launch) {
  if (!args.bias.given() && is_mappable(args.weight) && uses_panels(args.read, args.x, args.y)) {
    const MeteredRange range(launch.meter, cost_of(args.x, args.weight, args.y));
    return sm90::project_panels(args, launch);
  }
  gemm({.a = args.x.rows(),
        .b = args.weight.transposed(),
        .c = args.y.rows(),
        .bias = args.bias,
        .epilogue = args.bias.given() ? Epilogue::bias : Epilogue::none},
       launch);
}

void span_projection_backward(const SpanProjectionBackwardArgs& args, const Launch& launch) {
  if (!args.dbias.given() && uses_panels(args.read, args.x, args.dy)) {
    const MeteredRange range(launch.meter, cost_of(args.x, args.dweight, args.dy));
    return sm90::project_panels_backward(args, launch);
  }
  gemm({.a = args.dy.rows().transposed(), .b = args.x.rows(), .c = args.dweight, .accumulate = true}, launch);
  if (!args.dbias.given()) return;
  const ColumnSumArgs sums{args.dy.rows(), args.dbias, args.scratch};
  const MeteredRange range(launch.meter, sums.cost());
  column_sum(sums, launch);
}

}  // namespace longstride::kernels::cuda
