// The products of queries and the table of labels, and the table's gradient from sums by label.
#include <algorithm>

#include "kernels/attention/portable/portable.h"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

constexpr int threads = 128;

// Rows of lse: query i of a sequence's head.
struct LseRow {
  std::int64_t i, head, sequence;

  __device__ LseRow(const LabelsCall& call, std::int64_t row)
      : i(row % call.n_q), head(row / call.n_q % call.heads), sequence(row / call.n_q / call.heads) {}
  template <class T>
  __device__ const T* query(const HeadMatrix& q) const {
    return static_cast<const T*>(q.data) + sequence * q.batch + i * q.row + head * q.head;
  }
};

template <class T>
__global__ __launch_bounds__(threads) void products_kernel(const __grid_constant__ LabelsCall call, float* products) {
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (x >= static_cast<std::int64_t>(call.batch) * call.heads * call.n_q * call.count) return;
  const LseRow row(call, x / call.count);
  const T* const q = row.query<T>(call.q);
  const T* const vector =
      static_cast<const T*>(call.table) + row.head * call.table_head + x % call.count * call.table_label;
  float sum = 0;
  for (int d = 0; d < call.key_size; ++d) sum = fmaf(to_float(q[d]), to_float(vector[d]), sum);
  products[x] = sum;
}

// The sum over a chunk of the rows of one sequence's head.
template <class T>
__global__ __launch_bounds__(threads) void table_kernel(const __grid_constant__ LabelsCall call, float* partials,
                                                        std::int32_t rows) {
  const std::int64_t sequence = blockIdx.z, head = blockIdx.y, chunk = sequence * gridDim.x + blockIdx.x;
  const std::int64_t first = (sequence * call.heads + head) * call.n_q;
  const std::int64_t begin = first + static_cast<std::int64_t>(blockIdx.x) * rows;
  const std::int64_t end = min(begin + rows, first + call.n_q), tables = call.table_head > 0 ? call.heads : 1;
  for (std::int32_t x = threadIdx.x; x < call.count * call.key_size; x += threads) {
    const std::int32_t label = x / call.key_size, d = x % call.key_size;
    float sum = 0;
    for (std::int64_t r = begin; r < end; ++r)
      sum = fmaf(call.sums[r * call.count + label], to_float(LseRow(call, r).query<T>(call.q)[d]), sum);
    // (chunks, labels, heads, size), or of one table for all heads (chunks, heads, labels, size)
    const std::int64_t column =
        tables > 1 ? (chunk * call.count + label) * tables + head : (chunk * call.heads + head) * call.count + label;
    partials[column * call.key_size + d] = call.scale * sum;
  }
}

}  // namespace

template <class T>
void label_products(const LabelsCall& call, float* products, const Launch& launch) {
  const std::int64_t count = static_cast<std::int64_t>(call.batch) * call.heads * call.n_q * call.count;
  run("attention label products", products_kernel<T>, {static_cast<unsigned>((count + threads - 1) / threads), threads},
      launch, call, products);
}

template <class T>
void add_table_gradient(const LabelsCall& call, float* partials, float* dtable, const Launch& launch) {
  const std::int32_t chunks = label_chunks(call.n_q), rows = (call.n_q + chunks - 1) / chunks;
  const dim3 blocks(static_cast<unsigned>(chunks), static_cast<unsigned>(call.heads),
                    static_cast<unsigned>(call.batch));
  run("attention table gradient", table_kernel<T>, {blocks, threads}, launch, call, partials, rows);
  const std::int64_t columns = static_cast<std::int64_t>(call.count) * call.key_size;
  const std::int64_t of_heads = static_cast<std::int64_t>(chunks) * call.batch;
  add_partials(call.table_head > 0 ? PartialSums(partials, of_heads, columns * call.heads, dtable)
                                   : PartialSums(partials, of_heads * call.heads, columns, dtable),
               launch);
}

#define LONGSTRIDE_FOR_LABELS(T)                                             \
  template void label_products<T>(const LabelsCall&, float*, const Launch&); \
  template void add_table_gradient<T>(const LabelsCall&, float*, float*, const Launch&);
LONGSTRIDE_FOR_LABELS(float)
LONGSTRIDE_FOR_LABELS(__nv_bfloat16)
LONGSTRIDE_FOR_LABELS(__half)

}  // namespace longstride::kernels::cuda::portable
