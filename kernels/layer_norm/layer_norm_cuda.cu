#include "kernels/dropout/dropout_mask.cuh"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/layer_norm/norm_rows.cuh"

namespace longstride::kernels::cuda {
namespace {

// With a branch the normalised row is sum = x + dropout(branch), which is also written; without one it is x.
template <class T, class R>
struct ForwardRows {
  const T* branch;
  const R* x;
  R* sum;
  T* y;
  int x_stride, y_stride;  // branch and sum are contiguous
  const float* gain;
  const float* bias;
  float* mean;
  float* rstd;
  int rows, width;  // 32 bits: fewer instructions per address
  float epsilon;
  DropoutMask mask;
};

// whole: the lanes' packs are exactly a row, so that nothing is conditional. With a bf16 residual stream the kernel has
// time for about 55 instructions per element; a branch around every pack, its address and a rounding used it up.
template <int lanes, int packs, bool whole, class T, class R>
__global__ void __launch_bounds__(norm_threads) layer_norm_rows(const ForwardRows<T, R> p) {
  constexpr int at_once = norm_threads / lanes;
  const int lane = static_cast<int>(threadIdx.x % lanes), width = whole ? lanes * packs * 4 : p.width;
  const int row = static_cast<int>(blockIdx.x * at_once + threadIdx.x / lanes);
  if (lanes <= 32 && row >= p.rows) return;  // whole warps
  const bool real = lanes <= 32 || row < p.rows;
  const auto inside = [&](int i) { return real && (whole || (i * lanes + lane) * 4 < width); };
  constexpr int apart = lanes * 4;                     // distance between a lane's packs; the first is at:
  const std::int64_t own = at(row, width) + lane * 4;  // in contiguous rows
  const R* x_row = p.x + at(row, p.x_stride) + lane * 4;
  Words<R, 4> residual[packs];
#pragma unroll
  for (int i = 0; i < packs; ++i) residual[i] = inside(i) ? read<4>(x_row + i * apart) : Words<R, 4>{};
  float x[packs][4];
  const auto add_branch = [&](const Words<T, 4>(&branch)[packs], bool drops) {
    const std::uint32_t step = drops ? p.mask.step_word() : 0;
    const float scale = __shfl_sync(0xFFFFFFFFu, p.mask.scale, 0);  // kept in a register, not reread per element
    const std::int64_t group = (p.mask.first_element + own) / 4;
    R* sum_row = p.sum + own;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      float from[4];
      bool kept[4] = {true, true, true, true};
      if (drops) p.mask.draw(group + i * lanes, step, kept);
      unpack(branch[i], from);
      unpack(residual[i], x[i]);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[i][k] = add_dropped(x[i][k], from[k], kept[k], scale);
      const Words<R, 4> sum = pack<R>(x[i]);
      if (inside(i)) write(sum_row + i * apart, sum);
      unpack(sum, x[i]);
    }
  };
  if (p.branch != nullptr) {
    const T* branch_row = p.branch + own;
    Words<T, 4> branch[packs];
#pragma unroll
    for (int i = 0; i < packs; ++i) branch[i] = inside(i) ? read<4>(branch_row + i * apart) : Words<T, 4>{};
    if (p.mask.limit > 0)
      add_branch(branch, true);
    else
      add_branch(branch, false);
  } else {
#pragma unroll
    for (int i = 0; i < packs; ++i) unpack(residual[i], x[i]);
  }
  float sum[1] = {};
#pragma unroll
  for (int i = 0; i < packs; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[0] += x[i][k];
  row_sums<lanes>(sum);
  const float mean = sum[0] / static_cast<float>(width);
  float squares[1] = {};
#pragma unroll
  for (int i = 0; i < packs; ++i)
    if (inside(i))
#pragma unroll
      for (int k = 0; k < 4; ++k) squares[0] += (x[i][k] - mean) * (x[i][k] - mean);
  row_sums<lanes>(squares);
  const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(width) + p.epsilon);
  if (!real) return;
  if (lane == 0 && p.mean != nullptr) p.mean[row] = mean;
  if (lane == 0 && p.rstd != nullptr) p.rstd[row] = rstd;
  T* y_row = p.y + at(row, p.y_stride) + lane * 4;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    if (!inside(i)) continue;
    const float4 gain = __ldg(reinterpret_cast<const float4*>(p.gain + lane * 4 + i * apart));
    const float4 bias = __ldg(reinterpret_cast<const float4*>(p.bias + lane * 4 + i * apart));
    const float gains[4] = {gain.x, gain.y, gain.z, gain.w}, biases[4] = {bias.x, bias.y, bias.z, bias.w};
    float y[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k] = (x[i][k] - mean) * rstd * gains[k] + biases[k];
    store<4>(y_row + i * apart, y);
  }
}

// Any width and alignment: one block per row, which is read three times.
template <class T, class R>
__global__ void __launch_bounds__(norm_threads) layer_norm_any(const ForwardRows<T, R> p) {
  const int row = static_cast<int>(blockIdx.x);
  const R* x = p.x + at(row, p.x_stride);
  float sum[1] = {};
  if (p.branch != nullptr) {
    const std::uint32_t step = p.mask.step_word();
    R* out = p.sum + at(row, p.width);
    for (int j = static_cast<int>(threadIdx.x); j < p.width; j += norm_threads) {
      const std::int64_t i = at(row, p.width) + j;
      out[j] = from_float<R>(add_dropped(to_float(x[j]), to_float(p.branch[i]),
                                         p.mask.keeps(p.mask.first_element + i, step), p.mask.scale));
    }
    x = out;  // each thread reads only what it wrote itself
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
    p.y[at(row, p.y_stride) + j] = from_float<T>((to_float(x[j]) - mean) * rstd * p.gain[j] + p.bias[j]);
}

void run_layer_norm(const char* name, const LayerNormArgs& args, const DropoutArgs* dropout, const Launch& launch) {
  const Tensor& x = dropout != nullptr ? dropout->residual : args.x;
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  if (rows == 0) return;
  check_sizes(args.x);
  check_sizes(args.y);
  with_stream_types(args.y.dtype(), args.x.dtype(), [&](auto compute_zero, auto residual_zero) {
    using T = decltype(compute_zero);
    using R = decltype(residual_zero);
    ForwardRows<T, R> p = {};
    p.x = x.as<const R>();
    p.x_stride = static_cast<int>(dropout != nullptr ? width : x.stride(0));
    if (dropout != nullptr) {
      p.branch = dropout->branch.as<const T>();
      p.sum = dropout->y.as<R>();
      p.mask = DropoutMask(*dropout);
    }
    p.y = args.y.as<T>();
    p.y_stride = static_cast<int>(args.y.stride(0));
    p.gain = args.gain.as<const float>();
    p.bias = args.bias.as<const float>();
    p.mean = args.mean.as<float>();
    p.rstd = args.rstd.as<float>();
    p.rows = static_cast<int>(rows);
    p.width = static_cast<int>(width);
    p.epsilon = args.epsilon;
    const bool packed = p.x_stride % 4 == 0 && p.y_stride % 4 == 0 && p.mask.first_element % 4 == 0 &&
                        aligned(p.x, 4 * sizeof(R)) && aligned(p.sum, 4 * sizeof(R)) && aligned(p.y, 4 * sizeof(T)) &&
                        aligned(p.branch, 4 * sizeof(T)) && aligned(p.gain, 16) && aligned(p.bias, 16);
    const bool held =
        packed && with_row_shape(width, [&](auto lanes, auto packs) {
          const bool whole = width == lanes * packs * 4;
          run(name,
              whole ? layer_norm_rows<lanes(), packs(), true, T, R> : layer_norm_rows<lanes(), packs(), false, T, R>,
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
  run_layer_norm("dropout_add_layer_norm", args, &args.dropout, launch);
}

}  // namespace longstride::kernels::cuda
