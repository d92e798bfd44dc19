#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/embedding/embedding_tables.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;
constexpr int threads = lanes * warps;

// The slots sorted by the row of a table that they read: those of row v are at [start[v], start[v + 1]), and their
// pieces are [pieces[v], pieces[v + 1]).
struct SlotOrder {
  int* slots;
  int* counts;  // (chunks, rows)
  int* start;   // (rows + 1)
  int* pieces;  // (rows + 1)
  int rows, chunks, chunk_slots;
};

SlotOrder order_of(std::int64_t slots, std::int64_t rows, std::int64_t width, float* partials) {
  SlotOrder o = {};
  o.rows = static_cast<int>(rows);
  o.chunks = static_cast<int>(EmbeddingSplit::order_chunks(slots));
  o.chunk_slots = static_cast<int>(divide_up(slots, o.chunks));
  o.slots = reinterpret_cast<int*>(partials + EmbeddingSplit::most_pieces(slots, rows) * width);
  o.counts = o.slots + slots;
  o.start = o.counts + o.chunks * rows;
  o.pieces = o.start + rows + 1;
  return o;
}

// The token whose row slot i read, counted from `first`; -1: it read the start vector, or none of `rows` of them.
struct TokenOf {
  EmbeddingTables t;
  int first, rows;
  __device__ __forceinline__ int operator()(int i) const {
    if (t.reads_start(i, t.first + i % static_cast<int>(t.seq))) return -1;
    const int row = t.tokens[t.first == 0 && t.starts == nullptr && !t.own ? i - 1 : i] - first;
    return row >= 0 && row < rows ? row : -1;
  }
};

// The row of a position table that slot i read, counted from `first`; -1: none of `rows` of them.
struct PositionRowOf {
  EmbeddingTables t;
  DeviceTable table;
  std::int64_t first, rows;
  __device__ __forceinline__ int operator()(int i) const {
    const std::int64_t position = t.counted(i, t.first + i % static_cast<int>(t.seq));
    const std::int64_t row = position / table.divisor % table.size - first;
    return row >= 0 && row < rows ? static_cast<int>(row) : -1;
  }
};

// Thread k is in charge of the rows k, k + 256, ...: `each` of them.
constexpr int most_each = static_cast<int>(EmbeddingArgs::most_ids) / threads;

// Integer sums, so the order does not matter.
template <int each, class RowOf>
__global__ void __launch_bounds__(lanes* warps) count_rows(const RowOf row_of, const SlotOrder o) {
  __shared__ int counts[each * threads];
  const int thread = static_cast<int>(threadIdx.x), chunk = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int k = 0; k < each; ++k) counts[k * threads + thread] = 0;
  __syncthreads();
  const int begin = chunk * o.chunk_slots, end = min(begin + o.chunk_slots, static_cast<int>(row_of.t.slots));
  for (int i = begin + thread; i < end; i += lanes * warps) {
    const int row = row_of(i);
    if (row >= 0) atomicAdd(&counts[row], 1);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < each; ++k) {
    const int row = k * threads + thread;
    if (row < o.rows) o.counts[chunk * o.rows + row] = counts[row];
  }
}

// The sum of the values of the threads before this one; the last of of_thread becomes the sum of all.
__device__ __forceinline__ int before(int value, int (&of_thread)[lanes * warps]) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  of_thread[thread] = value;
  __syncthreads();
  for (int offset = 1; offset < lanes * warps; offset *= 2) {
    const int earlier = thread >= offset ? of_thread[thread - offset] : 0;
    __syncthreads();
    of_thread[thread] += earlier;
    __syncthreads();
  }
  return of_thread[thread] - value;
}

// A block sorts a chunk's slots; each warp handles an eighth of them, in order.
template <int each, class RowOf>
__global__ void __launch_bounds__(lanes* warps) order_slots(const RowOf row_of, const SlotOrder o) {
  __shared__ int next[warps][each * threads], of_thread[threads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes, warp = thread / lanes;
  const int chunk = static_cast<int>(blockIdx.x);
  int place[each];                    // the chunk's first slot of each row
  int all_slots = 0, all_pieces = 0;  // totals of the rows before k * threads
#pragma unroll
  for (int k = 0; k < each; ++k) {
    const int own = k * threads + thread;
    int total = 0, earlier = 0;  // slots of row `own`, in all chunks and in the preceding ones
    if (own < o.rows)
#pragma unroll 16
      for (int c = 0; c < o.chunks; ++c) {
        const int count = o.counts[c * o.rows + own];
        total += count;
        earlier += c < chunk ? count : 0;
      }
    constexpr int piece = static_cast<int>(EmbeddingSplit::piece);
    const int start = all_slots + before(total, of_thread), pieces = (total + piece - 1) / piece;
    if (k + 1 < each) all_slots += of_thread[threads - 1];
    const int first_piece = all_pieces + before(pieces, of_thread);
    if (k + 1 < each) all_pieces += of_thread[threads - 1];
    if (chunk == 0 && own < o.rows) {
      o.start[own] = start;
      o.pieces[own] = first_piece;
      if (own == o.rows - 1) {
        o.start[o.rows] = start + total;
        o.pieces[o.rows] = first_piece + pieces;
      }
    }
    for (int w = 0; w < warps; ++w) next[w][own] = 0;
    place[k] = start + earlier;
  }
  __syncthreads();
  const int part = (o.chunk_slots + warps - 1) / warps;
  const int chunk_end = min((chunk + 1) * o.chunk_slots, static_cast<int>(row_of.t.slots));
  const int begin = chunk * o.chunk_slots + warp * part, end = min(begin + part, chunk_end);
  for (int i = begin + lane; i < end; i += lanes) {
    const int row = row_of(i);
    if (row >= 0) atomicAdd(&next[warp][row], 1);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < each; ++k)
    for (int w = 0; w < warps; ++w) {
      const int count = next[w][k * threads + thread];
      next[w][k * threads + thread] = place[k];
      place[k] += count;
    }
  __syncthreads();
  for (int first = begin; first < end; first += lanes) {
    const int i = first + lane, row = i < end ? row_of(i) : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, row);
    const int rank = __popc(same & ((1u << lane) - 1));
    if (row >= 0) o.slots[next[warp][row] + rank] = i;
    __syncwarp();
    if (row >= 0 && rank == 0) next[warp][row] += __popc(same);
    __syncwarp();
  }
}

// n neighbouring elements as loaded from memory: 16 bytes, or one element.
template <int n, class X>
using Held = std::conditional_t<n == 1, Pack<X, 1>, Words<X, n>>;
template <int n, class X>
__device__ __forceinline__ Held<n, X> hold(const X* from) {
  if constexpr (n == 1)
    return {{*from}};
  else
    return read<n>(from);
}
template <class X>
__device__ __forceinline__ void unpack(const Pack<X, 1>& from, float (&to)[1]) {
  to[0] = to_float(from.value[0]);
}

// sum += the rows slot_of_lane of lanes [first, first + many), in order; all loads are in flight at once.
template <int many, int n, class X>
__device__ __forceinline__ void add_some(const X* columns, int width, int slot, int first, float (&sum)[n]) {
  Held<n, X> held[many];
#pragma unroll
  for (int k = 0; k < many; ++k)
    held[k] = hold<n>(columns + static_cast<std::int64_t>(__shfl_sync(0xFFFFFFFFu, slot, first + k)) * width);
#pragma unroll
  for (int k = 0; k < many; ++k) {
    float value[n];
    unpack(held[k], value);
#pragma unroll
    for (int e = 0; e < n; ++e) sum[e] += value[e];
  }
}

// sum += this warp's share, every 8th, of rows slot_of(begin) to slot_of(end - 1) of x, in order. Each lane finds one
// row of 32, and nothing is conditional, so that the loop consists of loads and additions. Sums beyond the width are
// not used.
template <int n, class X, class SlotOf>
__device__ __forceinline__ void add_rows(const X* x, int width, int column, int begin, int end, SlotOf slot_of,
                                         float (&sum)[n]) {
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes;
  const X* columns = x + (column < width ? column : 0);
  for (int first = begin + warp; first < end; first += lanes * warps) {
    const int mine = first + lane * warps, slot = mine < end ? slot_of(mine) : 0;
    const int count = min((end - first + warps - 1) / warps, lanes);
    int m = 0;
    for (; m + 8 <= count; m += 8) add_some<8>(columns, width, slot, m, sum);
    if (count & 4) add_some<4>(columns, width, slot, m, sum);
    if (count & 2) add_some<2>(columns, width, slot, m + (count & 4), sum);
    if (count & 1) add_some<1>(columns, width, slot, count - 1, sum);
  }
}

// Adds the warps' sums in order and passes them to keep(column, total) for the block's columns.
template <int n, class Keep>
__device__ __forceinline__ void add_warps(const float (&sum)[n], int first_column, int width, Keep keep) {
  __shared__ float of_warp[warps][lanes * n];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int e = 0; e < n; ++e) of_warp[thread / lanes][thread % lanes * n + e] = sum[e];
  __syncthreads();
  for (int j = thread; j < lanes * n; j += lanes * warps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += of_warp[w][j];
    if (first_column + j < width) keep(first_column + j, total);
  }
}

// A block sums a piece of one row's slots, over 32 n columns. partials (pieces, width).
template <int n, class Y>
__global__ void __launch_bounds__(lanes* warps)
    piece_gradient(const SlotOrder o, const Y* dy, int width, float* partials) {
  __shared__ int begin, end;
  const int thread = static_cast<int>(threadIdx.x), piece = static_cast<int>(blockIdx.x);
  if (piece >= o.pieces[o.rows]) return;
  for (int row = thread; row < o.rows; row += threads) {
    if (o.pieces[row] > piece || piece >= o.pieces[row + 1]) continue;
    constexpr int size = static_cast<int>(EmbeddingSplit::piece);
    begin = o.start[row] + (piece - o.pieces[row]) * size;
    end = min(begin + size, o.start[row + 1]);
  }
  __syncthreads();
  const int first = static_cast<int>(blockIdx.y) * lanes * n;
  float sum[n] = {};
  add_rows(
      dy, width, first + thread % lanes * n, begin, end, [&](int m) { return o.slots[m]; }, sum);
  add_warps(sum, first, width,
            [&](int column, float total) { partials[piece * static_cast<std::int64_t>(width) + column] = total; });
}

// A block adds the pieces of one row, times `scale`, to it in the table, over 32 n columns.
template <int n>
__global__ void __launch_bounds__(lanes* warps)
    add_pieces(const SlotOrder o, const float* partials, int width, float scale, float* table) {
  const int row = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * lanes * n;
  const int begin = o.pieces[row], end = o.pieces[row + 1];
  float sum[n] = {};
  add_rows(
      partials, width, first + static_cast<int>(threadIdx.x) % lanes * n, begin, end, [](int m) { return m; }, sum);
  if (begin == end) return;
  add_warps(sum, first, width,
            [&](int column, float total) { table[row * static_cast<std::int64_t>(width) + column] += scale * total; });
}

template <class Y>
__global__ void __launch_bounds__(lanes* warps) start_gradient(const EmbeddingTables t, const Y* dy) {
  const int column = static_cast<int>(blockIdx.x * lanes * warps + threadIdx.y * lanes + threadIdx.x);
  if (column >= t.width) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t i = 0; i < t.slots; i += t.seq)
    if (t.starts == nullptr || t.starts[i / t.seq] != 0) sum += to_float(dy[i * t.width + column]);
  t.start[column] += t.scale * sum;
}

// sum += dy of the slots in [begin, end) that pass, in order: a warp tests 32 neighbours at a time, every 8th of them.
// Adjacent columns of the block's warps, as add_rows.
template <int n, class Y, class Passes>
__device__ __forceinline__ void add_passing(const Y* dy, int width, int column, int begin, int end, Passes passes,
                                            float (&sum)[n]) {
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes;
  const Y* columns = dy + (column < width ? column : 0);
  for (int first = begin + warp * lanes; first < end; first += lanes * warps) {
    const int i = first + lane;
    unsigned found = __ballot_sync(0xFFFFFFFFu, i < end && passes(i));
    for (; found != 0; found &= found - 1) {
      const int slot = first + __ffs(static_cast<int>(found)) - 1;
      float value[n];
      unpack(hold<n>(columns + static_cast<std::int64_t>(slot) * width), value);
#pragma unroll
      for (int e = 0; e < n; ++e) sum[e] += value[e];
    }
  }
}

// With documents, slots are found by looking at all of them, once.
template <int n, class Y>
__global__ void __launch_bounds__(lanes* warps) start_gradient_of_documents(const EmbeddingTables t, const Y* dy) {
  const int first = static_cast<int>(blockIdx.x) * lanes * n;
  float sum[n] = {};
  const auto passes = [&](int i) { return t.reads_start(i, t.first + i % static_cast<int>(t.seq)); };
  add_passing(dy, t.width, first + static_cast<int>(threadIdx.x) % lanes * n, 0, static_cast<int>(t.slots), passes,
              sum);
  add_warps(sum, first, t.width, [&](int column, float total) { t.start[column] += t.scale * total; });
}

// A block handles one row of a position table, 32 n columns of it, and a chunk of the slots that read the row, counted
// sequence by sequence. partials (chunks, size, width).
template <int n, class Y>
__global__ void __launch_bounds__(lanes* warps)
    position_gradient(const EmbeddingTables t, const DeviceTable table, const Y* dy, int chunks, float* partials) {
  const std::int64_t row = blockIdx.x, period = table.size * table.divisor;
  const auto read_below = [&](std::int64_t position) {  // positions below `position` that read the row
    const std::int64_t rest = position % period - row * table.divisor;
    return position / period * table.divisor + (rest < 0 ? 0 : rest < table.divisor ? rest : table.divisor);
  };
  const std::int64_t earlier = read_below(t.first), of_sequence = read_below(t.first + t.seq) - earlier;
  const int slots = static_cast<int>(t.slots / t.seq * of_sequence), chunk_slots = (slots + chunks - 1) / chunks;
  const int begin = static_cast<int>(blockIdx.z) * chunk_slots, end = min(begin + chunk_slots, slots);
  // Slot numbers fit in 32 bits (checked by the host), where division is cheap.
  const auto per_sequence = static_cast<unsigned>(of_sequence), divisor = static_cast<unsigned>(table.divisor);
  const auto slot_of = [&](int m) {
    const unsigned sequence = static_cast<unsigned>(m) / per_sequence;
    const unsigned j = static_cast<unsigned>(m) % per_sequence + static_cast<unsigned>(earlier);
    return static_cast<int>(sequence * t.seq + j / divisor * period + row * table.divisor + j % divisor - t.first);
  };
  const int first = static_cast<int>(blockIdx.y) * lanes * n;
  float sum[n] = {};
  add_rows(dy, t.width, first + static_cast<int>(threadIdx.x) % lanes * n, begin, end, slot_of, sum);
  add_warps(sum, first, t.width,
            [&](int column, float total) { partials[(blockIdx.z * table.size + row) * t.width + column] = total; });
}

// Adds dy to the rows of a table, up to `most_ids`, that slots read.
template <int n, class Y, class RowOf>
void row_gradients(const RowOf& row_of, std::int64_t rows, float scale, float* table, const Y* dy, float* partials,
                   const Launch& launch) {
  const EmbeddingTables& t = row_of.t;
  const SlotOrder order = order_of(t.slots, rows, t.width, partials);
  const auto chunks = static_cast<unsigned>(order.chunks);
  const bool few = rows <= threads;
  run("embedding_count_rows", few ? count_rows<1, RowOf> : count_rows<most_each, RowOf>, {chunks, threads}, launch,
      row_of, order);
  run("embedding_order_slots", few ? order_slots<1, RowOf> : order_slots<most_each, RowOf>, {chunks, threads}, launch,
      row_of, order);
  const auto pieces = static_cast<unsigned>(EmbeddingSplit::most_pieces(t.slots, rows));
  run("embedding_piece_gradient", piece_gradient<n, Y>, {dim3(pieces, blocks_for(t.width, lanes * n)), threads}, launch,
      order, dy, t.width, partials);
  const int m = t.width % 4 == 0 ? 4 : 1;
  run("embedding_add_pieces", m == 4 ? add_pieces<4> : add_pieces<1>,
      {dim3(static_cast<unsigned>(rows), blocks_for(t.width, lanes * m)), threads}, launch, order,
      static_cast<const float*>(partials), t.width, scale, table);
}

template <int n, class Y>
void token_and_start_gradients(const EmbeddingTables& t, const Y* dy, std::int64_t vocabulary, float* partials,
                               const Launch& launch) {
  for (std::int64_t first = 0; first < vocabulary; first += EmbeddingArgs::most_ids) {
    const std::int64_t rows = std::min(vocabulary - first, EmbeddingArgs::most_ids);
    row_gradients<n>(TokenOf{t, std::max(t.band, 0) + static_cast<int>(first), static_cast<int>(rows)}, rows, t.scale,
                     t.token + first * t.width, dy, partials, launch);
  }
  if (t.start == nullptr) return;
  if (t.begin != nullptr)
    return run("embedding_start_gradient", start_gradient_of_documents<n, Y>, {blocks_for(t.width, lanes * n), threads},
               launch, t, dy);
  if (t.first != 0) return;
  run("embedding_start_gradient", start_gradient<Y>, {blocks_for(t.width, threads), dim3(lanes, warps)}, launch, t, dy);
}

template <int n, class Y>
void position_gradients(const EmbeddingTables& t, const Y* dy, float* partials, const Launch& launch) {
  for (int i = 0; i < t.count; ++i) {
    const DeviceTable& table = t.position[i];
    for (std::int64_t first = 0; t.restart && first < table.size; first += EmbeddingArgs::most_ids) {
      const std::int64_t rows = std::min(table.size - first, EmbeddingArgs::most_ids);
      row_gradients<n>(PositionRowOf{t, table, first, rows}, rows, 1, table.rows + first * t.width, dy, partials,
                       launch);
    }
    if (t.restart) continue;
    const std::int64_t chunks = EmbeddingSplit::row_chunks(t.slots, table.size), count = table.size * t.width;
    const dim3 blocks(static_cast<unsigned>(table.size), blocks_for(t.width, lanes * n), static_cast<unsigned>(chunks));
    run("embedding_position_gradient", position_gradient<n, Y>, {blocks, lanes * warps}, launch, t, table, dy,
        static_cast<int>(chunks), partials);
    add_partials({partials, chunks, count, table.rows}, launch);
  }
}

}  // namespace

void embedding_backward(const EmbeddingBackwardArgs& args, const Launch& launch) {
  const EmbeddingTables t = tables_of(args);
  if (t.slots == 0) return;
  if (t.slots >= (1 << 30)) throw std::logic_error("2^30 slots or more in one embedding_backward");
  float* partials = args.scratch.as<float>();
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using Y = decltype(zero);
    constexpr int packed = pack_of<Y>;
    const Y* dy = args.y.as<const Y>();
    const auto run_all = [&](auto n) {
      token_and_start_gradients<n()>(t, dy, args.token_table.size(0), partials, launch);
      position_gradients<n()>(t, dy, partials, launch);
    };
    if (t.width % packed == 0 && aligned(dy, 16))
      run_all(std::integral_constant<int, packed>{});
    else
      run_all(std::integral_constant<int, 1>{});
  });
}

}  // namespace longstride::kernels::cuda
