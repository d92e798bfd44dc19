#include <vector>

#include "kernels/column_sum/column_sum.h"
#include "kernels/gemm/gemm.h"
#include "kernels/span_projection/span_projection.h"

namespace longstride::kernels::cpu {
namespace {

// Neighbouring columns whose heads read the same rows.
struct Run {
  std::int64_t begin, end;  // columns
  std::int64_t first;       // row
};

std::vector<Run> runs_of(const DistanceScores& read, std::int64_t columns) {
  const std::int64_t heads = read.k.size(2), keys = heads * read.k.size(3);
  std::vector<Run> runs;
  std::int64_t begin = 0;
  for (const std::int64_t size : {read.k.size(3), (columns - keys) / heads})
    for (std::int64_t h = 0; h < heads; ++h, begin += size) {
      const std::int64_t first = first_row(read, h);
      if (runs.empty() || runs.back().first != first) runs.push_back({begin, begin, first});
      runs.back().end = begin + size;
    }
  return runs;
}

// Calls f with the rows of every sequence from `first` on, as matrices; with all rows at once if first is 0.
template <class F>
void each_read(const Tensor& a, const Tensor& b, std::int64_t first, F&& f) {
  if (first == 0) return f(a.rows(), b.rows());
  for (std::int64_t s = 0; s < a.size(0); ++s) {
    const auto rows = [&](const Tensor& t) { return t.slice(0, s, s + 1).slice(1, first, t.size(1)).rows(); };
    f(rows(a), rows(b));
  }
}

}  // namespace

void span_projection(const SpanProjectionArgs& args, const Launch& launch) {
  for (const Run& run : runs_of(args.read, args.y.size(2))) {
    const Tensor weight = args.weight.slice(0, run.begin, run.end);
    const Tensor bias = args.bias.given() ? args.bias.slice(0, run.begin, run.end) : Tensor{};
    each_read(args.x, args.y.slice(2, run.begin, run.end), run.first, [&](const Tensor& x, const Tensor& y) {
      gemm({.a = x,
            .b = weight.transposed(),
            .c = y,
            .bias = bias,
            .epilogue = bias.given() ? Epilogue::bias : Epilogue::none},
           launch);
    });
  }
}

void span_projection_backward(const SpanProjectionBackwardArgs& args, const Launch& launch) {
  for (const Run& run : runs_of(args.read, args.dy.size(2))) {
    const Tensor dweight = args.dweight.slice(0, run.begin, run.end);
    each_read(args.dy.slice(2, run.begin, run.end), args.x, run.first, [&](const Tensor& dy, const Tensor& x) {
      gemm({.a = dy.transposed(), .b = x, .c = dweight, .accumulate = true}, launch);
      if (args.dbias.given()) column_sum({dy, args.dbias.slice(0, run.begin, run.end), args.scratch}, launch);
    });
  }
}

}  // namespace longstride::kernels::cpu
