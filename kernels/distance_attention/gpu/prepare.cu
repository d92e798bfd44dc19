// The work before and after the products: queries with their biases, and the ordered sums of gradients of parameters.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/gpu/head.cuh"
#include "kernels/gpu/fragment.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

constexpr int threads = 256;

// One thread per element of (batch, n_q, heads, size).
template <class T>
__global__ void __launch_bounds__(threads) biased_kernel(const __grid_constant__ Call call, std::int64_t count) {
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (x >= count) return;
  const auto column = static_cast<std::int32_t>(x % call.size);
  const std::int64_t row = x / call.size / call.heads;
  const auto head = static_cast<std::int32_t>(x / call.size % call.heads);
  const std::int64_t sequence = row / call.n_q, i = row % call.n_q;
  const auto at = [&](const HeadMatrix& m) {
    return static_cast<T*>(m.data) + sequence * m.batch + i * m.row + head * m.head + column;
  };
  const float q = to_float(*at(call.q));
  if (call.content_bias != nullptr) *at(call.content) = from_float<T>(q + call.content_bias[head * call.size + column]);
  if (call.position_bias != nullptr)
    *at(call.position) = from_float<T>(q + call.position_bias[head * call.size + column]);
}

// The same for aligned rows of 16-bit types: eight elements of several rows per thread, which has their biases in
// registers. One thread per pack of a row and step of rows; `packs`: per head.
constexpr int pack_elements = 8, rows_of_thread = 8;
template <class T>
__global__ void __launch_bounds__(threads)
    biased_packs_kernel(const __grid_constant__ Call call, std::int32_t packs, std::int32_t row_step) {
  const std::int32_t x = static_cast<std::int32_t>(blockIdx.x) * threads + static_cast<std::int32_t>(threadIdx.x),
                     of_row = packs * call.heads, head = x % of_row / packs, column = x % packs * pack_elements;
  float content[pack_elements], position[pack_elements];
#pragma unroll
  for (int e = 0; e < pack_elements; ++e) {
    const std::int32_t at = head * call.size + column + e;
    content[e] = call.content_bias != nullptr ? call.content_bias[at] : 0.0f;
    position[e] = call.position_bias != nullptr ? call.position_bias[at] : 0.0f;
  }
  const std::int64_t rows = static_cast<std::int64_t>(call.batch) * call.n_q, first = x / of_row;
  const auto row_of = [&](int r) { return first + static_cast<std::int64_t>(r) * row_step; };
  const auto is_there = [&](int r) { return first < row_step && row_of(r) < rows; };
  const auto pack_of = [&](const HeadMatrix& m, int r) {
    const std::int64_t sequence = row_of(r) / call.n_q, i = row_of(r) % call.n_q;
    return reinterpret_cast<uint4*>(static_cast<T*>(m.data) + sequence * m.batch + i * m.row + head * m.head + column);
  };
  uint4 q[rows_of_thread];
#pragma unroll
  for (int r = 0; r < rows_of_thread; ++r) q[r] = is_there(r) ? *pack_of(call.q, r) : uint4{};
  const auto store = [&](const HeadMatrix& to, int r, const float(&bias)[pack_elements]) {
    const auto two = [&](std::uint32_t word, int e) {
      const float2 of_q = unpack<T>(word);
      return pack<T>(of_q.x + bias[e], of_q.y + bias[e + 1]);
    };
    *pack_of(to, r) = {two(q[r].x, 0), two(q[r].y, 2), two(q[r].z, 4), two(q[r].w, 6)};
  };
#pragma unroll
  for (int r = 0; r < rows_of_thread; ++r) {
    if (!is_there(r)) return;
    if (call.content_bias != nullptr) store(call.content, r, content);
    if (call.position_bias != nullptr) store(call.position, r, position);
  }
}

constexpr int sum_columns = 32, sum_rows = 32;

// Columns [32 x, 32 x + 32) of head y: rows (sequence, tile) in 32 interleaved sums, which are then added in order.
__global__ void __launch_bounds__(sum_columns* sum_rows)
    bias_sum_kernel(const __grid_constant__ Call call, float* dcontent_bias, float* dposition_bias, float* dspan) {
  const int column = static_cast<int>(blockIdx.x) * sum_columns + static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.y), width = 2 * call.size + 1;
  __shared__ float part[sum_rows][sum_columns];
  constexpr int loads = 8;  // that do not wait for one another
  const int tiles = call.query_tiles, y = static_cast<int>(threadIdx.y);
  float sum = 0;
  for (int sequence = y / tiles, tile = y % tiles; column < width && sequence < call.batch;) {
    float x[loads];
#pragma unroll
    for (float& element : x) {
      const std::int64_t row = (static_cast<std::int64_t>(sequence) * call.heads + head) * tiles + tile;
      element = sequence < call.batch ? call.bias_sums[row * width + column] : 0.0f;
      tile += sum_rows % tiles;
      sequence += sum_rows / tiles + (tile >= tiles ? 1 : 0);
      tile -= tile >= tiles ? tiles : 0;
    }
#pragma unroll
    for (const float element : x) sum += element;
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
  sum = 0;
  for (const auto& row : part) sum += row[threadIdx.x];
  float* const to = column < call.size ? dcontent_bias : column < 2 * call.size ? dposition_bias : dspan;
  const int index = column < 2 * call.size ? head * call.size + column % call.size : head;
  if (to != nullptr) to[index] += sum;
}

// One thread per element of T (distances, tables, size): every m that reads the row, in all heads that share it.
__global__ void __launch_bounds__(threads)
    table_sum_kernel(const __grid_constant__ Call call, float* dtable, std::int64_t row_stride,
                     std::int64_t head_stride, std::int32_t tables) {
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const auto column = static_cast<std::int32_t>(x % call.size);
  const auto table = static_cast<std::int32_t>(x / call.size % tables);
  const auto t = static_cast<std::int32_t>(x / call.size / tables);
  if (t >= call.distances) return;
  float sum = 0;
  for (std::int32_t head = table; head < call.heads; head += tables) {
    const std::int32_t step = call.step[head], begin = band_begin(origin_of(call.n_q, call.n_k, step), 0);
    const bool last = t == call.distances - 1;
    const std::int32_t most = call.window > 0 ? min(call.window, call.n_k) : call.n_k;
    const std::int32_t m_begin = (t + step - 1) / step;
    const std::int32_t m_end = last ? most : t % step == 0 ? min(m_begin + 1, most) : m_begin;
    for (std::int32_t m = m_begin; m < m_end; ++m) {
      const std::int32_t band = (m - begin) / tile_rows, row = (m - begin) % tile_rows;
      for (std::int32_t chunk = 0; chunk < call.chunks; ++chunk) {
        const std::int64_t of_head = static_cast<std::int64_t>(chunk) * call.heads + head, unit = of_head * call.bands;
        if (call.score_gradients != nullptr) {
          sum += call.table_sums[((of_head * call.pieces() + band) * tile_rows + row) * call.size + column];
          continue;
        }
        const auto element = [&](std::int64_t b, std::int32_t r) {
          return call.table_sums[((unit + b) * band_rows + r) * call.size + column];
        };
        sum += element(band, row);
        if (band > 0) sum += element(band - 1, row + tile_rows);
      }
    }
  }
  dtable[t * row_stride + table * head_stride + column] += sum;
}

}  // namespace

template <class T>
void biased_queries(const Call& call, const Launch& launch) {
  if (call.content_bias == nullptr && call.position_bias == nullptr) return;
  const std::int64_t rows = static_cast<std::int64_t>(call.batch) * call.n_q, count = rows * call.heads * call.size;
  if constexpr (sizeof(T) == 2)
    if (call.aligned) {
      const std::int64_t row_step = (rows + rows_of_thread - 1) / rows_of_thread;
      const std::int32_t packs = call.size / pack_elements;
      return run("distance attention biases", biased_packs_kernel<T>,
                 {blocks_for(row_step * call.heads * packs, threads), threads}, launch, call, packs,
                 static_cast<std::int32_t>(row_step));
    }
  run("distance attention biases", biased_kernel<T>, {blocks_for(count, threads), threads}, launch, call, count);
}

void add_bias_sums(const Call& call, float* dcontent_bias, float* dposition_bias, float* dspan, const Launch& launch) {
  if (dcontent_bias == nullptr && dposition_bias == nullptr && dspan == nullptr) return;
  const dim3 blocks(blocks_for(2 * call.size + 1, sum_columns), static_cast<unsigned>(call.heads));
  run("distance attention bias sums", bias_sum_kernel, {blocks, dim3(sum_columns, sum_rows)}, launch, call,
      dcontent_bias, dposition_bias, dspan);
}

void add_table_sums(const Call& call, const Tensor& dtable, const Launch& launch) {
  run("distance attention table sums", table_sum_kernel, {blocks_for(dtable.count(), threads), threads}, launch, call,
      dtable.as<float>(), dtable.stride(0), dtable.stride(1), static_cast<std::int32_t>(dtable.size(1)));
}

template void biased_queries<float>(const Call&, const Launch&);
template void biased_queries<__nv_bfloat16>(const Call&, const Launch&);
template void biased_queries<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
