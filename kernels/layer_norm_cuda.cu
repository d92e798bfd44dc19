#include "kernels/base/dropout_mask.cuh"
#include "kernels/base/norm_rows.cuh"
#include "kernels/layer_norm.h"

namespace longstride::kernels::cuda {
namespace {

// With a branch the row that is normalised is sum = x + dropout(branch), which is written too; without, it is x.
template <class T, class R>
struct Rows {
  const T* branch;
  const R* x;
  R* sum;
  T* y;
  std::int64_t x_stride, y_stride;  // branch and sum are contiguous
  const float* gain;
  const float* bias;
  float* mean;
  float* rstd;
  std::int64_t rows;
  int width;
  float epsilon;
  DropoutMask mask;
};

template <int lanes, int packs, class T, class R>
__global__ void __launch_bounds__(norm_threads) layer_norm_rows(const Rows<T, R> p) {
  constexpr int at_once = norm_threads / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * at_once + threadIdx.x / lanes;
  const bool real = row < p.rows;
  float x[packs][4];
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int j = (i * lanes + lane) * 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) x[i][k] = 0;
    if (real && j < p.width) load<4>(p.x + row * p.x_stride + j, x[i]);
  }
  if (p.branch != nullptr && real) {
    float branch[packs][4];
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int j = (i * lanes + lane) * 4;
      if (j < p.width) load<4>(p.branch + row * p.width + j, branch[i]);
    }
    const std::uint32_t step = p.mask.step_word();
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int j = (i * lanes + lane) * 4;
      if (j >= p.width) continue;
      float factor[4];
      p.mask.factors(p.mask.first_element + row * p.width + j, step, factor);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[i][k] = to_float(from_float<R>(add_dropped(x[i][k], branch[i][k], factor[k])));
      store<4>(p.sum + row * p.width + j, x[i]);
    }
  }
  float sum[1] = {};
#pragma unroll
  for (int i = 0; i < packs; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[0] += x[i][k];
  row_sums<lanes>(sum);
  const float mean = sum[0] / static_cast<float>(p.width);
  float squares[1] = {};
#pragma unroll
  for (int i = 0; i < packs; ++i)
    if ((i * lanes + lane) * 4 < p.width)
#pragma unroll
      for (int k = 0; k < 4; ++k) squares[0] += (x[i][k] - mean) * (x[i][k] - mean);
  row_sums<lanes>(squares);
  const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(p.width) + p.epsilon);
  if (!real) return;
  if (lane == 0 && p.mean != nullptr) p.mean[row] = mean;
  if (lane == 0 && p.rstd != nullptr) p.rstd[row] = rstd;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int j = (i * lanes + lane) * 4;
    if (j >= p.width) continue;
    float gain[4], bias[4], y[4];
    load<4>(p.gain + j, gain);
    load<4>(p.bias + j, bias);
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k] = (x[i][k] - mean) * rstd * gain[k] + bias[k];
    store<4>(p.y + row * p.y_stride + j, y);
  }
}

// Any width and alignment: a block to a row, which is read three times.
template <class T, class R>
__global__ void __launch_bounds__(norm_threads) layer_norm_any(const Rows<T, R> p) {
  const std::int64_t row = blockIdx.x;
  const R* x = p.x + row * p.x_stride;
  float sum[1] = {};
  if (p.branch != nullptr) {
    const std::uint32_t step = p.mask.step_word();
    R* out = p.sum + row * p.width;
    for (int j = static_cast<int>(threadIdx.x); j < p.width; j += norm_threads) {
      const std::int64_t i = row * p.width + j;
      out[j] = from_float<R>(
          add_dropped(to_float(x[j]), to_float(p.branch[i]), p.mask.factor(p.mask.first_element + i, step)));
    }
    x = out;  // each thread reads what it wrote itself
  }
  for (int j = static_cast<int>(threadIdx.x); j < p.width; j += norm_threads) sum[0] += to_float(x[j]);
  row_sums<norm_threads>(sum);
  const float mean = sum[0] / static_cast<float>(p.width);
  float squares[1] = {};
  for (int j = static_cast<int>(threadIdx.x); j < p.width; j += norm_threads) {
    const float d = to_float(x[j]) - mean;
    squares[0] += d * d;
  }
  row_sums<norm_threads>(squares);
  const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(p.width) + p.epsilon);
  if (threadIdx.x == 0 && p.mean != nullptr) p.mean[row] = mean;
  if (threadIdx.x == 0 && p.rstd != nullptr) p.rstd[row] = rstd;
  for (int j = static_cast<int>(threadIdx.x); j < p.width; j += norm_threads)
    p.y[row * p.y_stride + j] = from_float<T>((to_float(x[j]) - mean) * rstd * p.gain[j] + p.bias[j]);
}

void run_layer_norm(const char* name, const LayerNormArgs& args, const DropoutArgs* dropout, const Launch& launch) {
  const View& x = dropout != nullptr ? dropout->residual : args.x;
  const std::int64_t rows = args.x.size[0], width = args.x.size[1];
  if (rows == 0) return;
  with_stream_types(args.y.dtype, args.x.dtype, [&](auto compute_zero, auto residual_zero) {
    using T = decltype(compute_zero);
    using R = decltype(residual_zero);
    Rows<T, R> p = {};
    p.x = x.as<const R>();
    p.x_stride = dropout != nullptr ? width : x.stride[0];
    if (dropout != nullptr) {
      p.branch = dropout->branch.as<const T>();
      p.sum = dropout->y.as<R>();
      p.mask = DropoutMask(*dropout);
    }
    p.y = args.y.as<T>();
    p.y_stride = args.y.stride[0];
    p.gain = args.gain.as<const float>();
    p.bias = args.bias.as<const float>();
    p.mean = args.mean.as<float>();
    p.rstd = args.rstd.as<float>();
    p.rows = rows;
    p.width = static_cast<int>(width);
    p.epsilon = args.epsilon;
    const bool packed = p.x_stride % 4 == 0 && p.y_stride % 4 == 0 && p.mask.first_element % 4 == 0 &&
                        aligned(p.x, 4 * sizeof(R)) && aligned(p.sum, 4 * sizeof(R)) && aligned(p.y, 4 * sizeof(T)) &&
                        aligned(p.branch, 4 * sizeof(T)) && aligned(p.gain, 16) && aligned(p.bias, 16);
    const bool held = packed && with_row_shape(width, [&](auto lanes, auto packs) {
                        run(name, layer_norm_rows<lanes(), packs(), T, R>,
                            {blocks_for(rows, norm_threads / lanes()), norm_threads}, launch, p);
                      });
    if (!held) run(name, layer_norm_any<T, R>, {static_cast<unsigned>(rows), norm_threads}, launch, p);
  });
}

}  // namespace

void layer_norm(const LayerNormArgs& args, const Launch& launch) {
  run_layer_norm("layer_norm", args, nullptr, launch);
}

void dropout_add_layer_norm(const DropoutAddLayerNormArgs& args, const Launch& launch) {
  run_layer_norm("dropout_add_layer_norm", args.norm, &args.dropout, launch);
}

}  // namespace longstride::kernels::cuda
