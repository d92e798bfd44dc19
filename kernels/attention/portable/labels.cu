// The products of queries and the table of labels, and the table's gradient from sums by label.
#include <algorithm>

#include "kernels/attention/choice.h"
#include "kernels/attention/term/label_products.h"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

// Rows of a block's tile, a thread each in the products; a tile of q, the table and the results are in shared memory.
constexpr int threads = 128, tile_rows = 128, most_columns = 128;
// Labels of a thread at a time, whose sums are in registers; words of a tile of sums; rows of q that a thread reads at
// once.
constexpr int most_labels = 16, most_words = 12288, rows_ahead = 8;

// Words of a row's sums in shared memory, which are read four at a time.
__host__ __device__ constexpr std::int32_t words_of(std::int32_t labels) { return (labels + 3) / 4 * 4; }

template <class T>
__device__ const T* query_of(const LabelMatrices& of, std::int32_t i, std::int32_t head, std::int32_t sequence) {
  return static_cast<const T*>(of.q.data) + sequence * of.q.batch + i * of.q.row + head * of.q.head;
}

// Every thread has a query, whose products are in registers, `Labels` at a time. Columns are read `Columns` at a time.
template <class T, int Columns, int Labels>
__global__ __launch_bounds__(threads) void products_kernel(const __grid_constant__ LabelMatrices of) {
  const auto sequence = static_cast<std::int32_t>(blockIdx.z), head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x) * tile_rows;
  extern __shared__ __align__(16) char memory[];
  auto* const table = reinterpret_cast<float*>(memory);  // (columns, Labels)
  float* const out = table + most_columns * Labels;      // (tile_rows, Labels + 1)
  const std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.x), last = of.n_q - 1;
  const T* const q = query_of<T>(of, min(i, last), head, sequence);
  const T* const vectors = static_cast<const T*>(of.table) + head * of.table_head;
  float* const products = of.products + ((std::int64_t{sequence} * of.heads + head) * of.n_q + begin) * of.count;
  for (std::int32_t first = 0; first < of.count; first += Labels) {
    const std::int32_t labels = min(Labels, of.count - first);
    for (std::int32_t x = threadIdx.x; x < of.key_size * Labels; x += threads) {
      const std::int32_t l = x / of.key_size, d = x % of.key_size;
      table[d * Labels + l] = l < labels ? to_float(vectors[(first + l) * of.table_label + d]) : 0.0f;
    }
    __syncthreads();
    float sum[Labels] = {};
    for (std::int32_t d = 0; d < of.key_size; d += Columns) {
      float x[Columns];
      if constexpr (Columns == 1)
        x[0] = to_float(q[d]);
      else
        unpack(read<Columns>(q + d), x);
#pragma unroll
      for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int l = 0; l < Labels; ++l) sum[l] = fmaf(x[c], table[(d + c) * Labels + l], sum[l]);
    }
#pragma unroll
    for (int l = 0; l < Labels; ++l) out[threadIdx.x * (Labels + 1) + l] = sum[l];
    __syncthreads();
    for (std::int32_t x = threadIdx.x; x < tile_rows * labels; x += threads) {
      const std::int32_t r = x / labels, l = x % labels;
      if (begin + r < of.n_q) products[std::int64_t{r} * of.count + first + l] = out[r * (Labels + 1) + l];
    }
    __syncthreads();
  }
}

// The sum over a chunk of the rows of one sequence's head, by tiles. A thread has one column of q and most_labels
// labels.
template <class T>
__global__ __launch_bounds__(threads) void table_kernel(const __grid_constant__ LabelMatrices of, std::int32_t rows,
                                                        std::int32_t rows_at_once) {
  const auto sequence = static_cast<std::int32_t>(blockIdx.z), head = static_cast<std::int32_t>(blockIdx.y);
  const std::int64_t chunk = std::int64_t{sequence} * gridDim.x + blockIdx.x;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x) * rows, end = min(begin + rows, of.n_q);
  const std::int64_t tables = of.table_head > 0 ? of.heads : 1;
  extern __shared__ __align__(16) char memory[];
  auto* const in_tile = reinterpret_cast<float*>(memory);  // (rows_at_once, words_of) of the sums
  const float* const sums = of.sums + (std::int64_t{sequence} * of.heads + head) * of.n_q * of.count;
  const std::int32_t columns = of.key_size, groups = max(threads / columns, 1), words = words_of(of.count),
                     column = static_cast<std::int32_t>(threadIdx.x) % columns,
                     group = static_cast<std::int32_t>(threadIdx.x) / columns;
  for (std::int32_t first = 0; first < of.count; first += groups * most_labels) {
    const std::int32_t own = first + group * most_labels;  // the thread's first label
    const bool some = group < groups && own < of.count;
    float sum[most_labels] = {};
    for (std::int32_t tile = begin; tile < end; tile += rows_at_once) {
      const std::int32_t count = min(rows_at_once, end - tile);
      __syncthreads();
      for (std::int32_t x = threadIdx.x; x < count * words; x += threads) {
        const std::int32_t r = x / words, l = x % words;
        in_tile[x] = l < of.count ? sums[std::int64_t{tile + r} * of.count + l] : 0.0f;
      }
      __syncthreads();
      const T* const q = query_of<T>(of, tile, head, sequence) + column;
      for (std::int32_t r = 0; some && r < count; r += rows_ahead) {
        float x[rows_ahead];  // read at once, as each comes from far
#pragma unroll
        for (int i = 0; i < rows_ahead; ++i) x[i] = r + i < count ? to_float(q[(r + i) * of.q.row]) : 0.0f;
#pragma unroll
        for (int i = 0; i < rows_ahead; ++i) {
          const float* const of_row = in_tile + min(r + i, count - 1) * words + own;
#pragma unroll
          for (int l = 0; l < most_labels; l += 4) {
            if (own + l >= of.count) break;
            const float4 four = *reinterpret_cast<const float4*>(of_row + l);
            sum[l] = fmaf(four.x, x[i], sum[l]);
            sum[l + 1] = fmaf(four.y, x[i], sum[l + 1]);
            sum[l + 2] = fmaf(four.z, x[i], sum[l + 2]);
            sum[l + 3] = fmaf(four.w, x[i], sum[l + 3]);
          }
        }
      }
    }
    // (chunks, labels, heads, size), or of one table for all heads (chunks, heads, labels, size)
#pragma unroll
    for (int l = 0; l < most_labels; ++l) {
      const std::int32_t label = own + l;
      if (!some || label >= of.count) continue;
      const std::int64_t row =
          tables > 1 ? (chunk * of.count + label) * tables + head : (chunk * of.heads + head) * of.count + label;
      of.partials[row * columns + column] = of.scale * sum[l];
    }
  }
}

dim3 grid_of(const LabelMatrices& of, std::int32_t blocks) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(of.heads), static_cast<unsigned>(of.batch)};
}

template <class T, int Labels>
void products_of(const LabelMatrices& of, const Launch& launch) {
  constexpr std::size_t bytes = (most_columns * Labels + tile_rows * (Labels + 1)) * sizeof(float);
  const Grid grid{grid_of(of, (of.n_q + tile_rows - 1) / tile_rows), threads, bytes};
  if (of.aligned)
    run("attention label products", products_kernel<T, 16 / sizeof(T), Labels>, grid, launch, of);
  else
    run("attention label products", products_kernel<T, 1, Labels>, grid, launch, of);
}

}  // namespace

template <class T>
void label_products(const LabelMatrices& of, const Launch& launch) {
  of.count <= 4 ? products_of<T, 4>(of, launch) : products_of<T, 32>(of, launch);
}

void clear_label_sums(const LabelMatrices& of, const Launch& launch) {
  const auto bytes = static_cast<std::size_t>(of.partials - of.sums) * sizeof(float);
  check(cudaMemsetAsync(of.sums, 0, bytes, stream_of(launch)), "cudaMemsetAsync");
}

template <class T>
void add_table_gradient(const LabelMatrices& of, float* dtable, const Launch& launch) {
  const std::int32_t chunks = label_chunks(of.n_q), rows = (of.n_q + chunks - 1) / chunks;
  const std::int32_t words = words_of(of.count), at_once = std::clamp(most_words / words, 1, tile_rows);
  const std::size_t bytes = static_cast<std::size_t>(at_once) * static_cast<std::size_t>(words) * sizeof(float);
  run("attention table gradient", table_kernel<T>, {grid_of(of, chunks), threads, bytes}, launch, of, rows, at_once);
  const std::int64_t columns = std::int64_t{of.count} * of.key_size, of_heads = std::int64_t{chunks} * of.batch;
  add_partials(of.table_head > 0 ? PartialSums(of.partials, of_heads, columns * of.heads, dtable)
                                 : PartialSums(of.partials, of_heads * of.heads, columns, dtable),
               launch);
}

#define LONGSTRIDE_FOR_LABELS(T)                                        \
  template void label_products<T>(const LabelMatrices&, const Launch&); \
  template void add_table_gradient<T>(const LabelMatrices&, float*, const Launch&);
LONGSTRIDE_FOR_LABELS(float)
LONGSTRIDE_FOR_LABELS(__nv_bfloat16)
LONGSTRIDE_FOR_LABELS(__half)

}  // namespace longstride::kernels::cuda::portable
