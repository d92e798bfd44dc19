// X of every chunk (delta.cuh), by one block in f32: the inverses of the parts' own equations, a lane a column, and
// from them the blocks below the diagonal, a warp a column of blocks.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/delta.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

constexpr int stride = chunk + 4, block_threads = parts * warp_threads;

template <class T, int K>
struct InversesMemory {
  static constexpr std::size_t k = 0, own = bytes_of_tile<T>(chunk, K), inverse = own + sizeof(float) * chunk * stride,
                               sums = inverse + sizeof(float) * chunk * stride,
                               near = sums + sizeof(float) * parts * part * part, products = near + sizeof(Near),
                               beta = products + sizeof(Products), bytes = beta + sizeof(float) * chunk;
};

using Matrix = float (*)[stride];

// sum[e] += row of a 16 x 16 block of `left`, times columns [e] of one of `right`.
__device__ inline void add_block(float (&sum)[8], const float* left, const float* right, int right_stride) {
#pragma unroll 4
  for (int m = 0; m < part; ++m) {
    const float x = left[m];
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] += x * right[m * right_stride + e];
  }
}

// A part's own inverse: column `lane` of it.
__device__ inline void invert_part(Matrix own, Matrix inverse) {
  const int first = this_warp() * part, j = this_lane();
  if (j >= part) return;
  float x[part];
#pragma unroll
  for (int i = 0; i < part; ++i) {
    float sum = i == j ? 1.0f : 0.0f;
#pragma unroll
    for (int m = 0; m < i; ++m) sum -= own[first + i][first + m] * x[m];
    x[i] = sum;
    inverse[first + i][first + j] = sum;
  }
}

template <class T, int K>
__global__ __launch_bounds__(block_threads) void inverses_kernel(const __grid_constant__ ScanCall call) {
  using Memory = InversesMemory<T, K>;
  const Swizzled<T, K> k{reinterpret_cast<T*>(memory + Memory::k)};
  const auto own = reinterpret_cast<Matrix>(memory + Memory::own),
             inverse = reinterpret_cast<Matrix>(memory + Memory::inverse);
  float* const sums = reinterpret_cast<float*>(memory + Memory::sums) + this_warp() * part * part;
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products& products = *reinterpret_cast<Products*>(memory + Memory::products);
  float* const beta = reinterpret_cast<float*>(memory + Memory::beta);
  const int unit = static_cast<int>(blockIdx.y), number = static_cast<int>(blockIdx.x), late = this_warp(),
            lane = this_lane();
  const Place place(call, unit, number);
  start_rows<block_threads>(k, call.k, place, call.key_size, call.keys_aligned);
  copies_commit();
  set_beta(beta, call, place);
  if (call.scaled) set_products(products, &near, read_decay(call, place), place);
  copies_wait<0>();
  __syncthreads();
  for (int early = 0; early <= late; ++early) {
    Strip<1> sum;
    set_zero(sum);
    multiply<K / 16>(sum, k, late * part, Across<Swizzled<T, K>>{k}, early * part);
    each_visible(sum, products, near, late, early, call.scaled, [&](int i, int j, float x, float y) {
      own[i][j] = j < i ? x * beta[j] : 0.0f;
      own[i][j + 1] = j + 1 < i ? y * beta[j + 1] : 0.0f;
    });
  }
  __syncwarp();
  invert_part(own, inverse);
  __syncthreads();
  const int early = this_warp(), r = lane % part, half = lane / part * 8;
  for (int i = early + 1; i < parts; ++i) {
    float sum[8] = {};
    for (int m = early; m < i; ++m)
      add_block(sum, &own[i * part + r][m * part], &inverse[m * part][early * part + half], stride);
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[r * part + half + e] = sum[e];
    __syncwarp();
    float x[8] = {};
    add_block(x, &inverse[i * part + r][i * part], sums + half, part);
#pragma unroll
    for (int e = 0; e < 8; ++e) inverse[i * part + r][early * part + half + e] = -x[e];
    __syncwarp();
  }
  __syncthreads();
  const Square<T> to{inverse_of<T>(call, unit, number)};
  for (int i = this_thread(); i < chunk * chunk / 2; i += block_threads) {
    const int row = i / (chunk / 2), c = i % (chunk / 2) * 2;
    const bool there = c / part <= row / part;
    to.set_pair(row, c, there ? inverse[row][c] : 0.0f, there ? inverse[row][c + 1] : 0.0f);
  }
}

}  // namespace
}  // namespace walk

template <class T>
void delta_inverses(const ScanCall& call, const Launch& launch) {
  const auto start = [&](auto kernel, std::size_t bytes) {
    allow_shared(kernel, bytes);
    run("scan delta inverses", kernel,
        {dim3(static_cast<unsigned>((call.n + walk::chunk - 1) / walk::chunk), static_cast<unsigned>(call.units)),
         walk::block_threads, bytes},
        launch, call);
  };
  if (call.key_size <= 64)
    start(walk::inverses_kernel<T, 64>, walk::InversesMemory<T, 64>::bytes);
  else
    start(walk::inverses_kernel<T, 128>, walk::InversesMemory<T, 128>::bytes);
}

template void delta_inverses<__nv_bfloat16>(const ScanCall&, const Launch&);
template void delta_inverses<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
