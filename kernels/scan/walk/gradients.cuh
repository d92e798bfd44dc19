// The part that gradients of a run of chunks share, whatever its decays: one block carries S forwards and keeps it
// before every chunk, as products read it, in memory that the block uses again and so stays in the second-level cache;
// then it carries G backwards. The gradients of the decays are (gradients.cuh of the portable kernels)
//   d log a_t = <S, decay G> + sum over rows i from t on of (q_i dq_i - k_i dk_i) + sum over rows j before t of x_j
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/choice.h"
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// More: bytes that are kept with a state.
template <class T, int K, int V, int More = 0>
struct GradientsMemory {
  static constexpr std::size_t q = 0, k = bytes_of_tile<T>(chunk, K), v = 2 * k, dout = v + bytes_of_tile<T>(chunk, V),
                               before = dout + bytes_of_tile<T>(chunk, V), behind = before + Staged<T, K, V>::bytes,
                               scores = behind + Staged<T, K, V>::bytes,
                               errors = scores + bytes_of_tile<T>(chunk, chunk),
                               numbers = errors + bytes_of_tile<T>(chunk, chunk), own = numbers + sizeof(RowNumbers),
                               scales = own + sizeof(float) * chunk, rest = scales + sizeof(float) * most_run_chunks;
  // A state of the walk forwards: tile and z.
  static constexpr std::size_t state_bytes = walk_state_bytes(K, V), kept = state_bytes + More;
  static_assert(state_bytes == bytes_of_tile<T>(K, V) + sizeof(float) * K && rest % 16 == 0);
};

// dots += sign times the products of a warp's sums, element by element, with the rows of a tile from `at` on.
template <int Blocks, class Tile>
__device__ inline void add_channel_dots(Strip<Blocks>& dots, const Strip<Blocks>& sum, const Tile& tile, int at,
                                        int column, float sign) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b)
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      const int r = this_lane() / 4 + e % 4 / 2 * 8, c = column + 16 * b + e / 4 * 8 + this_lane() % 4 * 2;
      const float2 other = tile.pair(at + r, c);
      dots.d[b][e / 4][e % 4] += sign * sum.d[b][e / 4][e % 4] * other.x;
      dots.d[b][e / 4][e % 4 + 1] += sign * sum.d[b][e / 4][e % 4 + 1] * other.y;
    }
}

// Writes the warp's rows of a state, times a factor, as `stage` would: tile and z.
template <class T, int K, int V>
__device__ inline void keep_state(const State<T, K, V>& state, char* to, float factor) {
  const Swizzled<T, V> tile{reinterpret_cast<T*>(to)};
  float* const z = reinterpret_cast<float*>(to + bytes_of_tile<T>(K, V));
  const int strip = state.row();
  each_word<T>(state.s, factor,
               [&](int r, int c, const uint4& word) { *reinterpret_cast<uint4*>(tile.at(strip + r, c)) = word; });
  if (this_lane() % 4 != 0) return;
  z[strip + this_lane() / 4] = state.z[0];
  z[strip + this_lane() / 4 + 8] = state.z[2];
}

template <class T, int K, int V, int More = 0>
struct RunGradients {
  using Memory = GradientsMemory<T, K, V, More>;
  using Share = Shares<K>;
  using KeyTile = Swizzled<T, K>;
  using ValueTile = Swizzled<T, V>;
  using Square = Swizzled<T, chunk>;
  static constexpr int value_blocks = Share::template blocks<V>, key_columns = K / Share::groups;

  const ScanCall& call;
  const int unit, run, first = run * call.run_chunks,
                       count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  char* const kept = call.kept + static_cast<std::int64_t>(blockIdx.x) * call.run_chunks * Memory::kept;
  const int row = Share::strip() * part;
  const KeyTile q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const ValueTile v{reinterpret_cast<T*>(memory + Memory::v)}, dout{reinterpret_cast<T*>(memory + Memory::dout)};
  const Staged<T, K, V> before{memory + Memory::before}, behind{memory + Memory::behind};
  const Square scores{reinterpret_cast<T*>(memory + Memory::scores)},
      errors{reinterpret_cast<T*>(memory + Memory::errors)};
  RowNumbers& numbers = *reinterpret_cast<RowNumbers*>(memory + Memory::numbers);
  float *const own = reinterpret_cast<float*>(memory + Memory::own), *const scales = reinterpret_cast<float*>(
                                                                         memory + Memory::scales);

  __device__ RunGradients(const ScanCall& of_call, int task)
      : call(of_call), unit(task / of_call.chunks), run(task % of_call.chunks) {}

  __device__ Place place(int step) const { return {call, unit, first + step}; }
  __device__ std::int64_t state_of_run() const {
    return (static_cast<std::int64_t>(unit) * call.chunks + run) * call.key_size * call.columns;
  }

  // The warp's rows of a state as `stage` would write them, and where `start_state` finds them.
  __device__ void keep(State<T, K, V>& state, int step) const { keep(state, step, state.divisor(before.room)); }
  __device__ void keep(State<T, K, V>& state, int step, float scale) const {
    keep_state(state, kept + step * Memory::kept, 1 / scale);
    if (this_thread() == 0) scales[step] = scale;
  }
  __device__ void start(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
    start_others(step);
    copies_commit();
  }
  // All but the values.
  __device__ void start_others(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(q, call.q, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(dout, call.dout, at, call.value_size, call.values_aligned);
    start_bytes<Share::threads_of_block>(memory + Memory::before, kept + step * Memory::kept, Memory::state_bytes);
  }
  // Errors, the gradients of scores but for D: the warp's blocks, f(strip of 16 x 16, part of keys).
  template <class F>
  __device__ void each_error_block(F&& f) const {
    Strip<1> sums[Share::template blocks<chunk>];
    multiply_visible<K>(sums, dout, v);
    each_block<K>([&](int b, int early) {
      if (call.normalised)
        sums[b].each_pair([&](int r, int, float& x, float& y) {
          x = (x + numbers.of_z[row + r]) * numbers.inverse[row + r];
          y = (y + numbers.of_z[row + r]) * numbers.inverse[row + r];
        });
      f(sums[b], early);
    });
  }
  // Scores as the denominators have summed them.
  __device__ void put_score(int query, int key, float x, float y) const {
    x = key <= query ? x : 0.0f;
    y = key < query ? y : 0.0f;
    if (call.normalised) {
      const float2 summed = unpack<T>(pack<T>(x, y));
      x = summed.x * numbers.inverse[query];
      y = summed.y * numbers.inverse[query];
    }
    scores.set_pair(query, key, x, y);
  }
  // A position's own is kept apart: what it adds to dq and dk would cancel in the sums for the decays, but not to the
  // last bit.
  __device__ void put_error(int query, int key, float x, float y) const {
    if (key == query) own[query] = x;
    if (key + 1 == query) own[query] = y;
    errors.set_pair(query, key, key < query ? x : 0.0f, key + 1 < query ? y : 0.0f);
  }
  template <int Blocks, class Left, class Tile>
  __device__ void add_block(Strip<Blocks>& sum, const Left& left, const Tile& right, int p, int column) const {
    std::uint32_t a[4];
    load_left(a, left, row, p * part);
    add_rows<T>(sum, a, right, p * part, column);
  }
  template <int Blocks>
  __device__ void add_own(Strip<Blocks>& sum, const KeyTile& tile, int column) const {
    sum.each_pair([&](int r, int c, float& x, float& y) {
      const float2 other = tile.pair(row + r, column + c);
      x += own[row + r] * other.x;
      y += own[row + r] * other.y;
    });
  }
  // Rows of dO S^T and of V G^T, columns [column, +16 Blocks), with what z adds.
  template <int Blocks>
  __device__ void read_before(Strip<Blocks>& sum, float scale, int column) const {
    set_zero(sum);
    multiply<V / 16>(sum, dout, row, Across<ValueTile>{before.tile}, column);
    scale_rows(sum, scale, scale);
    if (!call.normalised) return;
    sum.each_pair([&](int r, int c, float& x, float& y) {
      x = (x + numbers.of_z[row + r] * before.z[column + c]) * numbers.inverse[row + r];
      y = (y + numbers.of_z[row + r] * before.z[column + c + 1]) * numbers.inverse[row + r];
    });
  }
  template <int Blocks>
  __device__ void read_behind(Strip<Blocks>& sum, float scale, int column) const {
    set_zero(sum);
    multiply<V / 16>(sum, v, row, Across<ValueTile>{behind.tile}, column);
    scale_rows(sum, scale, scale);
    if (!call.normalised) return;
    sum.each_pair([&](int, int c, float& x, float& y) {
      x += behind.z[column + c];
      y += behind.z[column + c + 1];
    });
  }
};

// The runs of a block that it takes(unit, run), one after another: S forwards, then G backwards.
template <class Gradients, class F>
__device__ inline void walk_runs(const ScanCall& call, F&& takes) {
  for (int task = static_cast<int>(blockIdx.x); task < call.units * call.chunks; task += static_cast<int>(gridDim.x)) {
    if (!takes(task / call.chunks, task % call.chunks)) continue;
    Gradients gradients(call, task);
    gradients.walk_forwards();
    gradients.walk_backwards();
    __syncthreads();
  }
}
template <class Gradients>
__device__ inline void walk_runs(const ScanCall& call) {
  walk_runs<Gradients>(call, [](int, int) { return true; });
}

template <class Kernel>
void launch_gradients(Kernel kernel, const ScanCall& call, int threads_of_block, std::size_t bytes,
                      const Launch& launch) {
  allow_shared(kernel, bytes);
  const int blocks = std::min(call.units * call.chunks,
                              walk_blocks(call.key_size, call.value_size, call.beta == nullptr && !call.channels));
  run("scan gradients of runs", kernel, {static_cast<unsigned>(blocks), static_cast<unsigned>(threads_of_block), bytes},
      launch, call);
}

}  // namespace longstride::kernels::cuda::scanning::walk
