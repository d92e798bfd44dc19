#include <algorithm>
#include <limits>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/base/vector.cuh"
#include "kernels/embedding/embedding_tables.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8, threads = lanes * warps;
constexpr unsigned all = 0xFFFFFFFF;  // lanes

// Numbers of rows, and bytes of a row. 32 bits (checked by the host) take half the shuffles, and one multiply-add.
template <int many>
using RowOf = std::conditional_t<many == 1, std::int64_t, int>;

// The rows that a slot reads: of the token table, or the start vector instead, or neither where a band lacks them; and
// of each position table.
template <class Row, bool of_band>
struct ReadRows {
  bool begins = false, lacks = false;
  Row token = 0;
  Row position[EmbeddingArgs::max_tables] = {};

  __device__ ReadRows(const EmbeddingTables& t, std::int64_t i) {
    const bool decoding = t.first_at != nullptr;
    const std::int64_t at = (decoding ? *t.first_at : t.first) + i % t.seq;
    begins = t.reads_start(i, at);
    if (!begins) token = t.tokens[t.first == 0 && !decoding && t.starts == nullptr && !t.own ? i - 1 : i];
    if constexpr (of_band) {
      if (!begins) token -= static_cast<Row>(t.band);
      lacks = begins ? t.start == nullptr : token < 0 || token >= t.ids;
      if (lacks) begins = false, token = 0;
    }
    const std::int64_t counted = t.counted(i, at);
#pragma unroll
    for (int k = 0; k < EmbeddingArgs::max_tables; ++k)
      if (k < t.count) position[k] = static_cast<Row>(counted / t.position[k].divisor % t.position[k].size);
  }
};

// n columns of a table. Lanes pass on numbers of rows, because the compiler would not know of a shuffled pointer that
// it is to global memory.
template <int n, int many>
struct Columns {
  using Row = RowOf<many>;
  const float* first;
  Row row_bytes;

  __device__ Columns(const float* table, unsigned column, int width)
      : first(table + column), row_bytes(static_cast<Row>(width) * static_cast<Row>(sizeof(float))) {}
  __device__ void read(Row row, float (&to)[n]) const {
    const char* bytes = reinterpret_cast<const char*>(first) + static_cast<std::int64_t>(row) * row_bytes;
    load<n>(reinterpret_cast<const float*>(bytes), to);
  }
  // The rows of lanes begin, begin + 1, ...
  template <int slots>
  __device__ void read_of_lanes(int begin, Row own, float (&to)[slots][n]) const {
#pragma unroll
    for (int m = 0; m < slots; ++m) read(many == 1 ? own : __shfl_sync(all, own, begin + m), to[m]);
  }
};

// The rows of the token table, or the start vector where bit m of `begins` is set, or 0 where that of `lacks` is; times
// `scale`.
template <int n, int many>
__device__ __forceinline__ void take_tokens(const EmbeddingTables& t, unsigned column, RowOf<many> own, unsigned begins,
                                            unsigned lacks, float (&sum)[many][n]) {
  Columns<n, many>(t.token, column, t.width).read_of_lanes(0, own, sum);
  if (begins != 0) {
#pragma unroll
    for (int m = 0; m < many; ++m)
      if (begins >> m & 1) load<n>(t.start + column, sum[m]);
  }
  if (lacks != 0) {
#pragma unroll
    for (int m = 0; m < many; ++m)
#pragma unroll
      for (int e = 0; e < n; ++e)
        if (lacks >> m & 1) sum[m][e] = 0;
  }
#pragma unroll
  for (int m = 0; m < many; ++m)
#pragma unroll
    for (int e = 0; e < n; ++e) sum[m][e] = __fmul_rn(sum[m][e], t.scale);  // never part of a fused multiply-add
}

// Opaque, or the compiler shares additions with add_own_rows, and copies the row.
template <int n, int many>
__device__ __forceinline__ void add_shared_row(const Columns<n, many>& columns, RowOf<many> row,
                                               float (&sum)[many][n]) {
  float more[n];
  columns.read(row, more);
#pragma unroll
  for (int m = 0; m < many; ++m)
#pragma unroll
    for (int e = 0; e < n; ++e) sum[m][e] = opaque(sum[m][e] + more[e]);
}

// Half of the slots at a time, as registers are few.
template <int n, int many>
__device__ __forceinline__ void add_own_rows(const Columns<n, many>& columns, RowOf<many> own, float (&sum)[many][n]) {
  constexpr int half = (many + 1) / 2;
#pragma unroll
  for (int begin = 0; begin < many; begin += half) {
    float more[half][n];
    columns.read_of_lanes(begin, own, more);
#pragma unroll
    for (int m = 0; m < half; ++m)
#pragma unroll
      for (int e = 0; e < n; ++e) sum[begin + m][e] += more[m][e];
  }
}

// A warp has `many` slots, `apart` from one another. Lane m finds the rows of slot m. Where all read the same row of a
// table, it is loaded once: reading rows in fp32 takes longer than writing the sums. Lanes of slots beyond the end read
// as the first slot does. The bound lets 32 warps run at once.
template <int n, int many, bool of_band, class Y>
__global__ void __launch_bounds__(threads, many == 1 ? 1 : 4)
    embedding_kernel(const EmbeddingTables t, std::int64_t apart, Y* y) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / lanes;
  const std::int64_t begin = many == 1 ? group : group / apart * apart * many + group % apart;
  if (begin >= t.slots) return;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t own = begin + lane % many * apart;
  const ReadRows<RowOf<many>, of_band> rows(t, own < t.slots ? own : begin);
  const unsigned given = __ballot_sync(all, own < t.slots), begins = __ballot_sync(all, rows.begins);
  const unsigned lacks = of_band ? __ballot_sync(all, rows.lacks) : 0;
  unsigned same = 0;  // bit k: of table k
#pragma unroll
  for (int k = 0; k < EmbeddingArgs::max_tables; ++k)
    if (many == 1 || __all_sync(all, rows.position[k] == __shfl_sync(all, rows.position[k], 0))) same |= 1u << k;
  asm volatile("" : "+r"(same));  // forces a new test of the bits: keeping predicates costs more
  for (int first = 0; first < t.width; first += lanes * n) {
    const bool inside = first + lane * n < t.width;  // the other lanes take part in shuffles
    const unsigned column = inside ? first + lane * n : 0;
    float sum[many][n];
    take_tokens(t, column, rows.token, begins, lacks, sum);
#pragma unroll
    for (int k = 0; k < EmbeddingArgs::max_tables; ++k) {
      if (k >= t.count) break;
      const Columns<n, many> columns(t.position[k].rows, column, t.width);
      if (many == 1 || (same >> k & 1) != 0)
        add_shared_row(columns, rows.position[k], sum);
      else
        add_own_rows(columns, rows.position[k], sum);
    }
    const unsigned written = inside ? given : 0;
    Y* to = y + begin * t.width + column;
#pragma unroll
    for (int m = 0; m < many; ++m, to += apart * t.width)
      if (written >> m & 1) store<n>(to, sum[m]);
  }
}

// How far apart a warp's slots are: the shortest period of a table that leaves neighbouring warps neighbouring slots.
std::int64_t distance_of_slots(const EmbeddingTables& t, int many) {
  const std::int64_t longest = t.slots / many;
  std::int64_t apart = 0;
  for (int k = 0; k < t.count; ++k) {
    const DeviceTable& p = t.position[k];
    if (p.divisor > longest / p.size) continue;  // their product may not fit in 64 bits
    const std::int64_t period = p.divisor * p.size;
    if (period >= lanes && (apart == 0 || period < apart)) apart = period;
  }
  return std::max<std::int64_t>(apart, 1);
}

template <int many, bool of_band, class Y>
void embed(const EmbeddingTables& t, bool packed, Y* y, const Launch& launch) {
  const std::int64_t apart = many == 1 ? 1 : distance_of_slots(t, many);
  const std::int64_t groups = divide_up(t.slots, apart * many) * apart;
  run("embedding", packed ? embedding_kernel<4, many, of_band, Y> : embedding_kernel<1, many, of_band, Y>,
      {blocks_for(groups, warps), threads}, launch, t, apart, y);
}

}  // namespace

void embedding(const EmbeddingArgs& args, const Launch& launch) {
  const EmbeddingTables t = tables_of(args);
  if (t.slots == 0) return;
  // Fewer slots need all warps.
  constexpr int many = 8, warps_of_multiprocessor = 32;
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  bool has_many = t.width <= most / 4 && t.slots >= std::int64_t{many} * warps_of_multiprocessor * multiprocessors();
  bool packed = t.width % 4 == 0 && aligned(t.start, 16) && aligned(t.token, 16);
  for (int i = 0; i < t.count; ++i) {
    packed = packed && aligned(t.position[i].rows, 16);
    has_many = has_many && t.position[i].size <= most;
  }
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using Y = decltype(zero);
    const bool in_packs = packed && aligned(args.y.data(), 4 * sizeof(Y));
    Y* const y = args.y.as<Y>();
    if (t.band >= 0) return embed<1, true>(t, in_packs, y, launch);
    has_many ? embed<many, false>(t, in_packs, y, launch) : embed<1, false>(t, in_packs, y, launch);
  });
}

}  // namespace longstride::kernels::cuda
