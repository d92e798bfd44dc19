#include "kernels/layer_norm/layer_norm.h"

#include <cmath>

#include "kernels/base/add_partials.h"
#include "kernels/column_sum/column_sum.h"

namespace longstride::kernels::cpu {
namespace {

template <class T>
struct Statistics {
  T mean, rstd;
};

// In two passes, because E[x^2] - E[x]^2 loses every digit when the mean is large.
template <class T>
Statistics<T> statistics(const T* x, std::int64_t width, float epsilon) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < width; ++j) sum += x[j];
  const T mean = sum / static_cast<T>(width);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean);
  return {mean, T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon))};
}

template <class T>
void forward(const LayerNormArgs& args) {
  const std::int64_t rows = args.x.size[0], width = args.x.size[1];
  const T* gain = args.gain.as<const T>();
  const T* bias = args.bias.as<const T>();
#pragma omp parallel for schedule(static) if (rows * width > 16384)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = args.x.as<const T>() + r * args.x.stride[0];
    T* y = args.y.as<T>() + r * args.y.stride[0];
    const Statistics<T> s = statistics(x, width, args.epsilon);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[j] = (x[j] - s.mean) * s.rstd * gain[j] + bias[j];
    if (args.mean.given()) args.mean.as<T>()[r] = s.mean;
    if (args.rstd.given()) args.rstd.as<T>()[r] = s.rstd;
  }
}

// One row of the backward pass; adds the row's share to dgain and dbias.
template <class T>
void backward_row(const T* dy, const T* x, const T* gain, Statistics<T> s, std::int64_t width, bool add_to_dx, T* dx,
                  T* dgain, T* dbias) {
  T sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (std::int64_t j = 0; j < width; ++j) {
    const T h = (x[j] - s.mean) * s.rstd;
    const T g = dy[j] * gain[j];
    sum_g += g;
    sum_gh += g * h;
    dgain[j] += dy[j] * h;
    dbias[j] += dy[j];
  }
  const T mean_g = sum_g / static_cast<T>(width), mean_gh = sum_gh / static_cast<T>(width);
  if (add_to_dx) {
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j)
      dx[j] += s.rstd * (dy[j] * gain[j] - mean_g - (x[j] - s.mean) * s.rstd * mean_gh);
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j)
      dx[j] = s.rstd * (dy[j] * gain[j] - mean_g - (x[j] - s.mean) * s.rstd * mean_gh);
  }
}

template <class T>
void backward(const LayerNormBackwardArgs& args) {
  const std::int64_t rows = args.x.size[0], width = args.x.size[1];
  const T* gain = args.gain.as<const T>();
  const T* mean = args.mean.as<const T>();
  const T* rstd = args.rstd.as<const T>();
  T* partials = args.partials.as<T>();
  const RowChunks split = row_chunks(rows);
#pragma omp parallel if (rows * width > 16384)
  {
#pragma omp for schedule(static) nowait
    for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
      T* dgain = partials + chunk * 2 * width;
      T* dbias = dgain + width;
      std::fill_n(dgain, 2 * width, T(0));
      const std::int64_t end = std::min(rows, (chunk + 1) * split.rows);
      for (std::int64_t r = chunk * split.rows; r < end; ++r)
        backward_row(args.dy.as<const T>() + r * args.dy.stride[0], args.x.as<const T>() + r * args.x.stride[0], gain,
                     {mean[r], rstd[r]}, width, args.add_to_dx, args.dx.as<T>() + r * args.dx.stride[0], dgain, dbias);
    }
    add_partials(partials, split.chunks, width, 2 * width, args.dgain.as<T>());
    add_partials(partials + width, split.chunks, width, 2 * width, args.dbias.as<T>());
  }
}

}  // namespace

void layer_norm(const LayerNormArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
}

void layer_norm_backward(const LayerNormBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) { backward<decltype(zero)>(args); });
}

void dropout_add_layer_norm(const DropoutAddLayerNormArgs& args, const Launch& launch) {
  dropout(args.dropout, launch);
  layer_norm(args.norm, launch);
}

void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs& args, const Launch& launch) {
  layer_norm_backward(args.norm, launch);
  dropout(args.dropout, launch);
  if (!args.branch_sums.given()) return;
  View branch = args.norm.dx;  // its shape, but contiguous
  branch.data = args.dropout.y.data;
  branch.stride[0] = branch.size[1];
  column_sum({branch, args.branch_sums, args.norm.partials}, launch);
}

}  // namespace longstride::kernels::cpu
