#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/embedding.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;

struct Table {
  std::int64_t divisor, size;
  float* rows;
};

struct Tables {
  const std::uint8_t* tokens;
  std::int64_t slots, seq, first;
  const std::int64_t* first_at;
  int width, count;
  float* start;
  float* token;
  Table position[EmbeddingArgs::max_tables];
};

Tables tables_of(const EmbeddingArgs& args) {
  Tables t = {};
  t.tokens = args.tokens.as<const std::uint8_t>();
  t.slots = args.tokens.count();
  t.seq = args.tokens.size[1];
  t.first = args.first;
  t.first_at = args.first_at;
  t.width = static_cast<int>(args.start.size[0]);
  t.count = args.tables;
  t.start = args.start.as<float>();
  t.token = args.token_table.as<float>();
  for (int i = 0; i < args.tables; ++i) {
    const PositionTableView& p = args.positions[i];
    t.position[i] = {p.divisor, p.table.size[0], p.table.as<float>()};
  }
  return t;
}

// A warp to a slot.
template <int n, class Y>
__global__ void __launch_bounds__(lanes* warps) embedding_kernel(const Tables t, Y* y) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
  if (i >= t.slots) return;
  const bool decoding = t.first_at != nullptr;
  const std::int64_t slot = i % t.seq, position = (decoding ? *t.first_at : t.first) + slot;
  const float* row[EmbeddingArgs::max_tables + 1];
  row[0] = t.start;
  if (position != 0)
    row[0] = t.token + static_cast<std::int64_t>(t.tokens[t.first == 0 && !decoding ? i - 1 : i]) * t.width;
#pragma unroll
  for (int k = 0; k < EmbeddingArgs::max_tables; ++k)
    if (k < t.count) row[k + 1] = t.position[k].rows + position / t.position[k].divisor % t.position[k].size * t.width;
  for (int j = static_cast<int>(threadIdx.x) * n; j < t.width; j += lanes * n) {
    float sum[n], more[n];
    load<n>(row[0] + j, sum);
#pragma unroll
    for (int k = 0; k < EmbeddingArgs::max_tables; ++k) {
      if (k >= t.count) break;
      load<n>(row[k + 1] + j, more);
#pragma unroll
      for (int e = 0; e < n; ++e) sum[e] += more[e];
    }
    store<n>(y + i * t.width + j, sum);
  }
}

// A warp takes a chunk of slots and 32 columns, and adds the slots in order to the rows of its table in shared memory,
// while the next slots are on their way. partials (chunks, vocabulary, width).
template <class Y>
__global__ void __launch_bounds__(lanes)
    token_gradient(const Tables t, const Y* dy, std::int64_t chunk_slots, int vocabulary, float* partials) {
  constexpr int at_once = 16;  // loads in flight
  __shared__ float sums[256][lanes];
  const int column = static_cast<int>(blockIdx.x) * lanes + static_cast<int>(threadIdx.x);
  const bool real = column < t.width;
  for (int v = 0; v < vocabulary; ++v) sums[v][threadIdx.x] = 0;
  const std::int64_t begin = blockIdx.y * chunk_slots;
  const std::int64_t end = begin + chunk_slots < t.slots ? begin + chunk_slots : t.slots;
  std::int64_t slot = begin % t.seq;
  struct Batch {
    float value[at_once];
    int token[at_once];  // -1: the start vector's slot
  };
  const auto fetch = [&](std::int64_t first, Batch& batch) {
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const std::int64_t i = first + k;
      const bool taken = i < end && (slot != 0 || t.first != 0);
      batch.token[k] = taken ? static_cast<int>(t.tokens[t.first == 0 ? i - 1 : i]) : -1;
      batch.value[k] = taken && real ? to_float(dy[i * t.width + column]) : 0;
      slot = slot + 1 == t.seq ? 0 : slot + 1;
    }
  };
  const auto add = [&](const Batch& batch) {
#pragma unroll
    for (int k = 0; k < at_once; ++k)
      if (batch.token[k] >= 0) sums[batch.token[k]][threadIdx.x] += batch.value[k];
  };
  Batch even, odd;
  fetch(begin, even);
  for (std::int64_t first = begin; first < end; first += 2 * at_once) {
    fetch(first + at_once, odd);
    add(even);
    fetch(first + 2 * at_once, even);
    add(odd);
  }
  if (!real) return;
  for (int v = 0; v < vocabulary; ++v)
    partials[(blockIdx.y * static_cast<std::int64_t>(vocabulary) + v) * t.width + column] = sums[v][threadIdx.x];
}

template <class Y>
__global__ void __launch_bounds__(lanes* warps) start_gradient(const Tables t, const Y* dy) {
  const int column = static_cast<int>(blockIdx.x * lanes * warps + threadIdx.y * lanes + threadIdx.x);
  if (column >= t.width) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t i = 0; i < t.slots; i += t.seq) sum += to_float(dy[i * t.width + column]);
  t.start[column] += sum;
}

// A block takes one row of a position table, 32 n columns, and a chunk of the slots that read the row, which are
// counted sequence by sequence. partials (chunks, size, width).
template <int n, class Y>
__global__ void __launch_bounds__(lanes* warps)
    position_gradient(const Tables t, const Table table, const Y* dy, int chunks, float* partials) {
  __shared__ float of_warp[warps][lanes * n];
  const std::int64_t row = blockIdx.x, period = table.size * table.divisor;
  const auto read_below = [&](std::int64_t position) {  // positions below it that read the row
    const std::int64_t rest = position % period - row * table.divisor;
    return position / period * table.divisor + (rest < 0 ? 0 : rest < table.divisor ? rest : table.divisor);
  };
  const std::int64_t earlier = read_below(t.first), of_sequence = read_below(t.first + t.seq) - earlier;
  const std::int64_t slots = t.slots / t.seq * of_sequence, chunk_slots = (slots + chunks - 1) / chunks;
  const std::int64_t begin = blockIdx.z * chunk_slots;
  const std::int64_t end = begin + chunk_slots < slots ? begin + chunk_slots : slots;
  const int first = static_cast<int>(blockIdx.y) * lanes * n, column = first + static_cast<int>(threadIdx.x) * n;
  float sum[n] = {};
  if (column < t.width) {
    // Slots of one table fit in 32 bits (the host checks), where division is cheap.
    const auto per_sequence = static_cast<unsigned>(of_sequence), divisor = static_cast<unsigned>(table.divisor);
#pragma unroll 4
    for (std::int64_t m = begin + threadIdx.y; m < end; m += warps) {
      const unsigned sequence = static_cast<unsigned>(m) / per_sequence;
      const unsigned j = static_cast<unsigned>(m) % per_sequence + static_cast<unsigned>(earlier);
      const std::int64_t i = sequence * t.seq + j / divisor * period + row * table.divisor + j % divisor - t.first;
      float value[n];
      load<n>(dy + i * t.width + column, value);
#pragma unroll
      for (int e = 0; e < n; ++e) sum[e] += value[e];
    }
  }
#pragma unroll
  for (int e = 0; e < n; ++e) of_warp[threadIdx.y][threadIdx.x * n + e] = sum[e];
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.y * lanes + threadIdx.x); j < lanes * n; j += lanes * warps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += of_warp[w][j];
    if (first + j < t.width) partials[(blockIdx.z * table.size + row) * t.width + first + j] = total;
  }
}

template <class Y>
void token_and_start_gradients(const Tables& t, const Y* dy, std::int64_t vocabulary, float* partials,
                               const Launch& launch) {
  const std::int64_t chunks = EmbeddingSplit::token_chunks(t.slots, t.width);
  run("embedding_token_gradient", token_gradient<Y>,
      {dim3(blocks_for(t.width, lanes), static_cast<unsigned>(chunks)), lanes}, launch, t, dy,
      divide_up(t.slots, chunks), static_cast<int>(vocabulary), partials);
  add_partials({partials, chunks, vocabulary * t.width, t.token}, launch);
  if (t.first != 0) return;
  run("embedding_start_gradient", start_gradient<Y>, {blocks_for(t.width, lanes * warps), dim3(lanes, warps)}, launch,
      t, dy);
}

template <int n, class Y>
void position_gradients(const Tables& t, const Y* dy, float* partials, const Launch& launch) {
  for (int i = 0; i < t.count; ++i) {
    const Table& table = t.position[i];
    const std::int64_t chunks = EmbeddingSplit::row_chunks(t.slots, table.size), count = table.size * t.width;
    const dim3 blocks(static_cast<unsigned>(table.size), blocks_for(t.width, lanes * n), static_cast<unsigned>(chunks));
    run("embedding_position_gradient", position_gradient<n, Y>, {blocks, dim3(lanes, warps)}, launch, t, table, dy,
        static_cast<int>(chunks), partials);
    add_partials({partials, chunks, count, table.rows}, launch);
  }
}

}  // namespace

void embedding(const EmbeddingArgs& args, const Launch& launch) {
  const Tables t = tables_of(args);
  if (t.slots == 0) return;
  bool packed = t.width % 4 == 0 && aligned(t.start, 16) && aligned(t.token, 16);
  for (int i = 0; i < t.count; ++i) packed = packed && aligned(t.position[i].rows, 16);
  with_gpu_type(args.y.dtype, [&](auto zero) {
    using Y = decltype(zero);
    run("embedding", packed && aligned(args.y.data, 4 * sizeof(Y)) ? embedding_kernel<4, Y> : embedding_kernel<1, Y>,
        {blocks_for(t.slots, warps), dim3(lanes, warps)}, launch, t, args.y.as<Y>());
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args, const Launch& launch) {
  const Tables t = tables_of(args);
  if (t.slots == 0) return;
  if (t.slots >= (std::int64_t{1} << 31)) throw std::logic_error("more than 2^31 slots in one embedding_backward");
  float* partials = args.partials.as<float>();
  with_gpu_type(args.y.dtype, [&](auto zero) {
    using Y = decltype(zero);
    const Y* dy = args.y.as<const Y>();
    token_and_start_gradients(t, dy, args.token_table.size[0], partials, launch);
    if (t.width % 4 == 0 && aligned(dy, 4 * sizeof(Y)))
      position_gradients<4>(t, dy, partials, launch);
    else
      position_gradients<1>(t, dy, partials, launch);
  });
}

}  // namespace longstride::kernels::cuda
