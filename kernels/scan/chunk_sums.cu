// Every chunk's sum of outer products, a block a slice of keys and a group of columns; and their scan.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/decays.cuh"

namespace longstride::kernels::cuda::scanning {
namespace {

template <class T>
struct SumsMemory {
  static constexpr std::size_t left = 0, right = tile_bytes<T, slice<T>>(rows),
                               decays = right + tile_bytes<T, widest_group<T>>(rows),
                               inverse = decays + sizeof(HeadDecays), bytes = inverse + sizeof(float) * rows;
};

// Warps share the columns of a strip of keys.
template <class T>
__global__ __launch_bounds__(threads) void sums_kernel(const ScanCall call, const Sums what, const bool to_end,
                                                       float* const states) {
  constexpr int strips = slice<T> / 16, parts = warps / strips, blocks = (widest_group<T> / 16 + parts - 1) / parts;
  const Keys<T> left{reinterpret_cast<T*>(memory + SumsMemory<T>::left)};
  const Values<T> right{reinterpret_cast<T*>(memory + SumsMemory<T>::right)};
  HeadDecays& decays = *reinterpret_cast<HeadDecays*>(memory + SumsMemory<T>::decays);
  const int groups = groups_of<T>(call.columns);
  const Place place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
  const Columns keys = slice_of<T>(call, static_cast<int>(blockIdx.z) / groups),
                columns = group_of<T>(call, static_cast<int>(blockIdx.z) % groups);
  float* const whole = call.whole + (static_cast<std::int64_t>(place.unit) * call.chunks + place.chunk) * call.decays();
  const bool scaled = call.decay != nullptr || call.begin != nullptr, first = columns.first == 0;
  const float* factor = nullptr;
  if (scaled && !call.channels) {
    decays.set(call, place);
    factor = to_end ? decays.to_end : decays.from_start;
  }
  if (!call.channels && first && keys.first == 0 && this_thread() == 0) *whole = scaled ? decays.whole : 1.0f;
  load_keys(left, call, what == Sums::keys_and_values ? call.k : call.q, place, keys, factor);
  if (what == Sums::keys_and_values)
    load_values(right, call, place, columns);
  else
    load_gradients(right, call, place, columns, reinterpret_cast<float*>(memory + SumsMemory<T>::inverse));
  __syncthreads();
  if (call.channels) {
    scale_channels(left, call, place, keys, to_end, first ? whole : nullptr);
    __syncthreads();
  }
  const int row = this_warp() % strips * 16, column = this_warp() / strips * blocks * 16;
  if (row >= keys.padded || column >= columns.padded) return;
  Strip<blocks> sum;
  sum.clear();
  add_product(sum, Across<Keys<T>>{left}, row, right, column, min(blocks, (columns.padded - column) / 16), 0, rows);
  float* const to = states + place.state(call);
  sum.each([&](int r, int c, float& x) {
    if (row + r < keys.count && column + c < columns.count)
      to[static_cast<std::int64_t>(keys.first + row + r) * call.columns + columns.first + column + c] = x;
  });
}

// A thread an element of a unit's state. Reads are started before the sums that need them.
__global__ __launch_bounds__(threads) void carry_kernel(const ScanCall call, const bool backwards, float* const states,
                                                        const float* const first, float* const last) {
  const int size = call.key_size * call.columns, e = static_cast<int>(blockIdx.x) * threads + this_thread();
  if (e >= size) return;
  constexpr int ahead = 8;
  const std::int64_t unit = blockIdx.y, start = unit * call.chunks;
  const int decay = call.channels ? e / call.columns : 0;
  float s = first != nullptr ? first[unit * size + e] : 0.0f;
  for (int from = 0; from < call.chunks; from += ahead) {
    float x[ahead], a[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (from + i >= call.chunks) break;
      const std::int64_t c = start + (backwards ? call.chunks - 1 - from - i : from + i);
      x[i] = states[c * size + e];
      a[i] = call.whole[c * call.decays() + decay];
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (from + i >= call.chunks) break;
      const std::int64_t c = start + (backwards ? call.chunks - 1 - from - i : from + i);
      states[c * size + e] = s;
      s = a[i] * s + x[i];
    }
  }
  if (last != nullptr) last[unit * size + e] = s;
}

dim3 grid_of(const ScanCall& call, int z) {
  return {static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units), static_cast<unsigned>(z)};
}

}  // namespace

template <class T>
void sum_chunks(const ScanCall& call, Sums what, bool to_end, float* states, const Launch& launch) {
  const int slices = (call.key_size + slice<T> - 1) / slice<T>;
  constexpr std::size_t bytes = SumsMemory<T>::bytes;
  allow_shared(sums_kernel<T>, bytes);
  run("scan sums", sums_kernel<T>, {grid_of(call, slices * groups_of<T>(call.columns)), threads, bytes}, launch, call,
      what, to_end, states);
}

void carry(const ScanCall& call, bool backwards, float* states, const float* first, float* last, const Launch& launch) {
  const int size = call.key_size * call.columns;
  run("scan carry", carry_kernel,
      {dim3(static_cast<unsigned>((size + threads - 1) / threads), static_cast<unsigned>(call.units)), threads}, launch,
      call, backwards, states, first, last);
}

template void sum_chunks<float>(const ScanCall&, Sums, bool, float*, const Launch&);
template void sum_chunks<__nv_bfloat16>(const ScanCall&, Sums, bool, float*, const Launch&);
template void sum_chunks<__half>(const ScanCall&, Sums, bool, float*, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
