#include "kernels/base/add_partials.cuh"
#include "kernels/dropout/dropout_mask.cuh"
#include "kernels/gpu/copy.cuh"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/layer_norm/norm_rows.cuh"

namespace longstride::kernels::cuda {
namespace {

// The use of the gradient dx in the branch below.
enum class Below {
  none,    // there is no branch
  is_dx,   // it is dx itself, of which only the column sums are new
  copied,  // dbranch = dx, in the compute type
  dropped  // dbranch = dropout(dx)
};

template <class T, class R>
struct BackwardRows {
  const T* dy;
  const R* x;
  R* dx;
  T* dbranch;                          // null unless it is copied or dropped
  int dy_stride, x_stride, dx_stride;  // dbranch is contiguous
  const float* gain;
  const float* mean;
  const float* rstd;
  float* partials;  // (chunks, sums, width): dgain, dbias and, when sums is 3, the column sums of dbranch
  int sums;
  int rows, chunk_rows, width;  // 32 bits: fewer instructions per address
  bool add;                     // dx holds a gradient
  DropoutMask mask;
};

// A thread's share of one row, in a ring of rows that are loaded while another is processed; without it a
// multiprocessor would alternate between loading and adding. A thread reads only what its own warp copied.
template <int packs, class T, class R>
struct Ring {
  static constexpr int bytes = norm_threads * packs * 4 * static_cast<int>(sizeof(T) + 2 * sizeof(R));  // per row
  static constexpr int fit = 98 * 1024 / bytes, rows = fit > 4 ? 4 : fit;
  static_assert(rows >= 2);

  Words<R, 4> x[rows][packs][norm_threads], dx[rows][packs][norm_threads];
  Words<T, 4> dy[rows][packs][norm_threads];
  float mean[rows][norm_threads / 32], rstd[rows][norm_threads / 32];
};

// Starts the copies of this warp's part of a row. If rows are whole, each lane copies 16 bytes, which bypass the
// first-level cache: with two-byte elements, half a warp copies the packs of the whole warp.
template <int lanes, int packs, bool whole, class E>
__device__ __forceinline__ void copy_row(Words<E, 4> (&to)[packs][norm_threads], const E* row, int width) {
  const int thread = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.x % lanes);
  if constexpr (whole && sizeof(E) == 2 && packs % 2 == 0) {
    const int which = static_cast<int>(threadIdx.x % 32 / 16);
    const int offset = static_cast<int>(threadIdx.x % 16 * 2) - static_cast<int>(threadIdx.x % 32);
    const E* from = row + (which * lanes + lane + offset) * 4;
#pragma unroll
    for (int i = 0; i < packs; i += 2)
      copy_async(reinterpret_cast<Words<E, 8>*>(&to[i + which][thread + offset]), from + i * lanes * 4);
  } else {
#pragma unroll
    for (int i = 0; i < packs; ++i)
      if (whole || (i * lanes + lane) * 4 < width) copy_async(&to[i][thread], row + lane * 4 + i * lanes * 4);
  }
}

// A block processes a chunk of rows, norm_threads / lanes at a time, and keeps its column sums in registers; the gain
// is reread for every row, from the first-level cache. whole: as in the forward pass. of_y: dx holds a gradient of y.
template <int lanes, int packs, bool whole, bool of_y, class T, class R>
__global__ void __launch_bounds__(norm_threads, packs <= 2 && sizeof(R) == 2 ? 3 : 2)
    backward_rows(const BackwardRows<T, R> p) {
  constexpr int at_once = norm_threads / lanes, apart = lanes * 4;  // distance between a lane's packs
  extern __shared__ __align__(16) unsigned char memory[];
  auto& ring = *reinterpret_cast<Ring<packs, T, R>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.x % lanes);
  const int group = static_cast<int>(threadIdx.x / lanes);
  const int width = whole ? lanes * packs * 4 : p.width;
  const int begin = static_cast<int>(blockIdx.x) * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  const std::uint32_t step = p.dbranch != nullptr ? p.mask.step_word() : 0;
  const float per_width = 1.0f / static_cast<float>(width);
  float column_sums[3][packs][4] = {};

  const auto fetch = [&](int row, int slot) {
    if (row < end) {
      if (thread % 32 == 0) {
        copy_async(&ring.mean[slot][thread / 32], p.mean + row);
        copy_async(&ring.rstd[slot][thread / 32], p.rstd + row);
      }
      copy_row<lanes, packs, whole>(ring.dy[slot], p.dy + at(row, p.dy_stride), width);
      copy_row<lanes, packs, whole>(ring.x[slot], p.x + at(row, p.x_stride), width);
      if (of_y || p.add) copy_row<lanes, packs, whole>(ring.dx[slot], p.dx + at(row, p.dx_stride), width);
    }
    copies_commit();
  };
  constexpr int ahead = Ring<packs, T, R>::rows - 1;
#pragma unroll
  for (int s = 0; s < ahead; ++s) fetch(begin + group + s * at_once, s);
  int slot = 0;
  for (int first = begin; first < end; first += at_once) {
    const int row = first + group;
    if (lanes <= 32 && row >= end) break;  // whole warps
    const auto inside = [&](int i) { return (lanes <= 32 || row < end) && (whole || (i * lanes + lane) * 4 < width); };
    __syncwarp();  // the previous slot has been read
    fetch(row + ahead * at_once, slot == 0 ? ahead : slot - 1);
    copies_wait<ahead>();
    __syncwarp();
    const float mean = ring.mean[slot][thread / 32], rstd = ring.rstd[slot][thread / 32];
    float dy[packs][4] = {}, h[packs][4] = {};
    float sums[2] = {};  // sums of g and of g h
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      if (!inside(i)) continue;
      const float4 gains = __ldg(reinterpret_cast<const float4*>(p.gain + lane * 4 + i * apart));
      const float gain[4] = {gains.x, gains.y, gains.z, gains.w};
      unpack(ring.dy[slot][i][thread], dy[i]);
      if constexpr (of_y) {
        float held[4];
        unpack(ring.dx[slot][i][thread], held);
#pragma unroll
        for (int k = 0; k < 4; ++k) dy[i][k] += held[k];
      }
      unpack(ring.x[slot][i][thread], h[i]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        h[i][k] = (h[i][k] - mean) * rstd;
        column_sums[0][i][k] += dy[i][k] * h[i][k];
        column_sums[1][i][k] += dy[i][k];
        dy[i][k] *= gain[k];
        sums[0] += dy[i][k];
        sums[1] += dy[i][k] * h[i][k];
      }
    }
    row_sums<lanes>(sums);
    const float mean_g = sums[0] * per_width, mean_gh = sums[1] * per_width;
    const auto finish = [&](Below below) {
      R* dx_row = p.dx + at(row, p.dx_stride) + lane * 4;
      const std::int64_t own = at(row, width) + lane * 4, drawn = (p.mask.first_element + own) / 4;
      T* dbranch_row = p.dbranch + own;
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (!inside(i)) continue;
        float dx[4] = {};
        if (!of_y && p.add) unpack(ring.dx[slot][i][thread], dx);
#pragma unroll
        for (int k = 0; k < 4; ++k) dx[k] += rstd * (dy[i][k] - mean_g - h[i][k] * mean_gh);
        const Words<R, 4> out = pack<R>(dx);
        write(dx_row + i * apart, out);
        if (below == Below::none) continue;
        if (below == Below::is_dx) {
          unpack(out, dx);
        } else {
          bool kept[4] = {true, true, true, true};
          if (below == Below::dropped) p.mask.draw(drawn + i * lanes, step, kept);
          unpack(out, dx);
#pragma unroll
          for (int k = 0; k < 4; ++k) dx[k] = dropped(dx[k], kept[k], p.mask.scale);
          const Words<T, 4> dbranch = pack<T>(dx);
          write(dbranch_row + i * apart, dbranch);
          unpack(dbranch, dx);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) column_sums[2][i][k] += dx[k];
      }
    };
    if (p.dbranch == nullptr)
      p.sums == 3 && std::is_same_v<T, R> ? finish(Below::is_dx) : finish(Below::none);
    else if (p.mask.limit > 0)
      finish(Below::dropped);
    else
      finish(Below::copied);
    slot = slot == ahead ? 0 : slot + 1;
  }

  // The sums of the groups are added in order, in the ring's memory.
  auto& of_group = *reinterpret_cast<float(*)[at_once][lanes * packs * 4]>(memory);
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    if (which >= p.sums) break;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < packs; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) of_group[group][(i * lanes + lane) * 4 + k] = column_sums[which][i][k];
    __syncthreads();
    for (int j = thread; j < p.width; j += norm_threads) {
      float total = 0;
#pragma unroll
      for (int g = 0; g < at_once; ++g) total += of_group[g][j];
      p.partials[(blockIdx.x * static_cast<std::int64_t>(p.sums) + which) * p.width + j] = total;
    }
  }
}

// Any width and alignment: a block processes a chunk of rows one at a time, reading each twice.
template <bool of_y, class T, class R>
__global__ void __launch_bounds__(norm_threads) backward_any(const BackwardRows<T, R> p) {
  const int first = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x) * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  const std::uint32_t step = p.dbranch != nullptr ? p.mask.step_word() : 0;
  float* dgain = p.partials + blockIdx.x * static_cast<std::int64_t>(p.sums) * p.width;
  float* dbias = dgain + p.width;
  float* branch_sums = p.sums == 3 ? dbias + p.width : nullptr;
  for (int s = 0; s < p.sums; ++s)
    for (int j = first; j < p.width; j += norm_threads) dgain[s * static_cast<std::int64_t>(p.width) + j] = 0;
  for (int row = begin; row < end; ++row) {
    const T* dy = p.dy + at(row, p.dy_stride);
    const R* x = p.x + at(row, p.x_stride);
    R* dx = p.dx + at(row, p.dx_stride);
    const float mean = p.mean[row], rstd = p.rstd[row];
    const auto dy_at = [&](int j) { return of_y ? to_float(dy[j]) + to_float(dx[j]) : to_float(dy[j]); };
    float sums[2] = {};
    for (int j = first; j < p.width; j += norm_threads) {
      const float d = dy_at(j), h = (to_float(x[j]) - mean) * rstd;
      sums[0] += d * p.gain[j];
      sums[1] += d * p.gain[j] * h;
      dgain[j] += d * h;
      dbias[j] += d;
    }
    row_sums<norm_threads>(sums);
    const float mean_g = sums[0] / static_cast<float>(p.width), mean_gh = sums[1] / static_cast<float>(p.width);
    for (int j = first; j < p.width; j += norm_threads) {
      const float h = (to_float(x[j]) - mean) * rstd;
      const float d = rstd * (dy_at(j) * p.gain[j] - mean_g - h * mean_gh);
      const R out = from_float<R>(!of_y && p.add ? to_float(dx[j]) + d : d);
      dx[j] = out;
      float below = to_float(out);
      if (p.dbranch != nullptr) {
        const std::int64_t i = at(row, p.width) + j;
        p.dbranch[i] = from_float<T>(dropped(below, p.mask.keeps(p.mask.first_element + i, step), p.mask.scale));
        below = to_float(p.dbranch[i]);
      }
      if (branch_sums != nullptr) branch_sums[j] += below;
    }
  }
}

// dropout: null unless dbranch is written.
template <class T, class R>
BackwardRows<T, R> rows_of(const LayerNormBackwardArgs& args, const DropoutArgs* dropout, int sums,
                           const RowChunks& split) {
  BackwardRows<T, R> p = {};
  p.dy = args.dy.as<const T>();
  p.x = args.x.as<const R>();
  p.dx = args.dx.as<R>();
  p.dy_stride = static_cast<int>(args.dy.stride(0));
  p.x_stride = static_cast<int>(args.x.stride(0));
  p.dx_stride = static_cast<int>(args.dx.stride(0));
  if (dropout != nullptr) {
    p.dbranch = dropout->y.as<T>();
    p.mask = DropoutMask(*dropout);
  }
  p.gain = args.gain.as<const float>();
  p.mean = args.mean.as<const float>();
  p.rstd = args.rstd.as<const float>();
  p.partials = args.scratch.as<float>();
  p.sums = sums;
  p.rows = static_cast<int>(args.x.size(0));
  p.chunk_rows = static_cast<int>(split.rows);
  p.width = static_cast<int>(args.x.size(1));
  p.add = args.held != HeldGradient::none;
  return p;
}

template <bool of_y>
void run_backward(const char* name, const LayerNormBackwardArgs& args, const DropoutArgs* dropout,
                  const Tensor& branch_sums, const Launch& launch) {
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  if (rows == 0) return;
  for (const Tensor* view : {&args.dy, &args.x, &args.dx}) check_sizes(*view);
  const RowChunks split = row_chunks(rows);
  const auto blocks = static_cast<unsigned>(split.chunks);
  with_stream_types(args.dy.dtype(), args.x.dtype(), [&](auto compute_zero, auto residual_zero) {
    using T = decltype(compute_zero);
    using R = decltype(residual_zero);
    const BackwardRows<T, R> p = rows_of<T, R>(args, dropout, branch_sums.given() ? 3 : 2, split);
    const bool packed = p.dy_stride % 4 == 0 && p.x_stride % 4 == 0 && p.dx_stride % 4 == 0 &&
                        p.mask.first_element % 4 == 0 && aligned(p.dy, 4 * sizeof(T)) &&
                        aligned(p.dbranch, 4 * sizeof(T)) && aligned(p.x, 4 * sizeof(R)) &&
                        aligned(p.dx, 4 * sizeof(R)) && aligned(p.gain, 16);
    const bool copies = p.dy_stride * sizeof(T) % 16 == 0 && p.x_stride * sizeof(R) % 16 == 0 &&
                        p.dx_stride * sizeof(R) % 16 == 0 && aligned(p.dy, 16) && aligned(p.x, 16) && aligned(p.dx, 16);
    const bool held = packed && with_row_shape(width, [&](auto lanes, auto packs) {
                        const bool whole = width == lanes * packs * 4 && copies;
                        const auto kernel = whole ? backward_rows<lanes(), packs(), true, of_y, T, R>
                                                  : backward_rows<lanes(), packs(), false, of_y, T, R>;
                        constexpr std::size_t shared = sizeof(Ring<packs(), T, R>);
                        allow_shared(kernel, shared);
                        run(name, kernel, {blocks, norm_threads, shared}, launch, p);
                      });
    if (!held) run(name, backward_any<of_y, T, R>, {blocks, norm_threads}, launch, p);
  });
  PartialSums sums(args.scratch.as<const float>(), split.chunks, width, args.dgain.as<float>());
  sums.add(args.dbias.as<float>());
  if (branch_sums.given()) sums.add(branch_sums.as<float>());
  add_partials(sums, launch);
}

}  // namespace

void layer_norm_backward(const LayerNormBackwardArgs& args, const Launch& launch) {
  const auto run = args.held == HeldGradient::of_y ? run_backward<true> : run_backward<false>;
  run("layer_norm_backward", args, nullptr, {}, launch);
}

void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs& args, const Launch& launch) {
  const auto run = args.held == HeldGradient::of_y ? run_backward<true> : run_backward<false>;
  run("layer_norm_backward_dropout", args, args.dropout.y.given() ? &args.dropout : nullptr, args.branch_sums, launch);
}

}  // namespace longstride::kernels::cuda
