#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/base/vector.cuh"
#include "kernels/embedding/embedding_tables.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8, threads = lanes * warps;

// The rows that slot i reads: of the tokens, or the start vector; and of each position table.
struct ReadRows {
  const float* first;
  const float* position[EmbeddingArgs::max_tables];

  __device__ ReadRows(const EmbeddingTables& t, std::int64_t i) : first(t.start) {
    const bool decoding = t.first_at != nullptr;
    const std::int64_t at = (decoding ? *t.first_at : t.first) + i % t.seq;
    if (at != 0 || (t.starts != nullptr && t.starts[i / t.seq] == 0)) {
      const bool shifted = t.first == 0 && !decoding && t.starts == nullptr;
      first = t.token + static_cast<std::int64_t>(t.tokens[shifted ? i - 1 : i]) * t.width;
    }
#pragma unroll
    for (int k = 0; k < EmbeddingArgs::max_tables; ++k)
      if (k < t.count) position[k] = t.position[k].rows + at / t.position[k].divisor % t.position[k].size * t.width;
  }
};
__device__ __forceinline__ const float* of_lane(const float* row, int lane) {
  return reinterpret_cast<const float*>(__shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(row), lane));
}

// A warp has `many` slots, `apart` from one another. Lane k finds the rows of slot k. Where all read the same row of a
// table, it is loaded once: reading rows in fp32 takes longer than writing the sums.
template <int n, int many, class Y>
__global__ void __launch_bounds__(threads) embedding_kernel(const EmbeddingTables t, std::int64_t apart, Y* y) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / lanes;
  const std::int64_t begin = group / apart * apart * many + group % apart;
  if (begin >= t.slots) return;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t own = begin + lane % many * apart;
  const ReadRows rows(t, own < t.slots ? own : begin);
  bool same[EmbeddingArgs::max_tables] = {};
#pragma unroll
  for (int k = 0; k < EmbeddingArgs::max_tables; ++k)
    if (k < t.count) same[k] = __all_sync(0xFFFFFFFFu, rows.position[k] == of_lane(rows.position[k], 0));
  for (int first = 0; first < t.width; first += lanes * n) {
    const bool inside = first + lane * n < t.width;
    const int j = inside ? first + lane * n : 0;
    float sum[many][n], more[many][n];
#pragma unroll
    for (int m = 0; m < many; ++m) load<n>(of_lane(rows.first, m) + j, sum[m]);
#pragma unroll
    for (int m = 0; m < many; ++m)
#pragma unroll
      for (int e = 0; e < n; ++e) sum[m][e] = __fmul_rn(sum[m][e], t.scale);
#pragma unroll
    for (int k = 0; k < EmbeddingArgs::max_tables; ++k) {
      if (k >= t.count) break;
      if (same[k]) {
        load<n>(rows.position[k] + j, more[0]);
#pragma unroll
        for (int m = 0; m < many; ++m)
#pragma unroll
          for (int e = 0; e < n; ++e) sum[m][e] += more[0][e];
        continue;
      }
#pragma unroll
      for (int m = 0; m < many; ++m) load<n>(of_lane(rows.position[k], m) + j, more[m]);
#pragma unroll
      for (int m = 0; m < many; ++m)
#pragma unroll
        for (int e = 0; e < n; ++e) sum[m][e] += more[m][e];
    }
#pragma unroll
    for (int m = 0; m < many; ++m)
      if (inside && begin + m * apart < t.slots) store<n>(y + (begin + m * apart) * t.width + j, sum[m]);
  }
}

// How far apart a warp's slots are: the shortest period of a table that leaves neighbouring warps neighbouring slots.
std::int64_t distance_of_slots(const EmbeddingTables& t, int many) {
  std::int64_t apart = 0;
  for (int k = 0; k < t.count; ++k) {
    const std::int64_t period = t.position[k].divisor * t.position[k].size;
    if (period >= lanes && period * many <= t.slots && (apart == 0 || period < apart)) apart = period;
  }
  return std::max<std::int64_t>(apart, 1);
}

template <int many, class Y>
void embed(const EmbeddingTables& t, bool packed, Y* y, const Launch& launch) {
  const std::int64_t apart = many == 1 ? 1 : distance_of_slots(t, many);
  const std::int64_t groups = (t.slots + apart * many - 1) / (apart * many) * apart;
  run("embedding", packed ? embedding_kernel<4, many, Y> : embedding_kernel<1, many, Y>,
      {blocks_for(groups, warps), threads}, launch, t, apart, y);
}

}  // namespace

void embedding(const EmbeddingArgs& args, const Launch& launch) {
  const EmbeddingTables t = tables_of(args);
  if (t.slots == 0) return;
  bool packed = t.width % 4 == 0 && aligned(t.start, 16) && aligned(t.token, 16);
  for (int i = 0; i < t.count; ++i) packed = packed && aligned(t.position[i].rows, 16);
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using Y = decltype(zero);
    const bool in_packs = packed && aligned(args.y.data(), 4 * sizeof(Y));
    // Fewer slots need all warps.
    constexpr int many = 8, warps_of_multiprocessor = 32;
    const bool has_many = t.slots >= std::int64_t{many} * warps_of_multiprocessor * multiprocessors();
    has_many ? embed<many>(t, in_packs, args.y.as<Y>(), launch) : embed<1>(t, in_packs, args.y.as<Y>(), launch);
  });
}

}  // namespace longstride::kernels::cuda
