// The outputs of runs with a decay per channel (outputs.cu).
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/channel_decays.cuh"
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct ChannelOutputsMemory {
  static constexpr std::size_t q = 0, k = bytes_of_tile<T>(chunk, K), scaled_q = 2 * k, scaled_k = 3 * k, v = 4 * k,
                               state = v + bytes_of_tile<T>(chunk, V), scores = state + Staged<T, K, V>::bytes,
                               ones = scores + bytes_of_tile<T>(chunk, chunk), products = ones + sizeof(float) * chunk,
                               bytes = products + (sizeof(ChannelProducts<T, K>) + 15) / 16 * 16;
};

template <class T, int K, int V>
struct ChannelOutputs {
  using Memory = ChannelOutputsMemory<T, K, V>;
  using Share = Shares<K>;
  static constexpr int blocks = Share::template blocks<V>;
  const ScanCall& call;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  const Swizzled<T, K> q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)},
      scaled_q{reinterpret_cast<T*>(memory + Memory::scaled_q)},
      scaled_k{reinterpret_cast<T*>(memory + Memory::scaled_k)};
  const Swizzled<T, V> v{reinterpret_cast<T*>(memory + Memory::v)};
  const Staged<T, K, V> staged{memory + Memory::state};
  const Swizzled<T, chunk> scores{reinterpret_cast<T*>(memory + Memory::scores)};
  float* const ones = reinterpret_cast<float*>(memory + Memory::ones);
  ChannelProducts<T, K>& products = *reinterpret_cast<ChannelProducts<T, K>*>(memory + Memory::products);

  __device__ void write(const Place& at, float scale) const {
    const int row = Share::strip() * part, column = Share::group_number() * (V / Share::groups);
    Strip<blocks> o;
    set_zero(o);
    float below[4] = {};
#pragma unroll 2
    for (int c = 0; c < K; c += 16) {
      std::uint32_t a[4];
      load_left(a, scaled_q, row, c);
      scale_channels<T>(a, c, [&](int channel) { return products.before(Share::strip(), channel); });
      add_rows<T>(o, a, staged.tile, c, column);
      if (call.normalised) add_column<T>(below, a, staged.z + c);
    }
    scale_rows(o, scale, scale);
    for (int p = 0; p <= Share::strip(); ++p) {
      std::uint32_t a[4];
      load_left(a, scores, row, p * part);
      add_rows<T>(o, a, v, p * part, column);
      if (call.normalised) add_column<T>(below, a, ones);
    }
    if (call.normalised) divide<K>(o, below, call, at);
    store_rows<T>(o, call.o, at, row, column, call.value_size, call.values_aligned);
  }
  __device__ void walk() {
    const std::int64_t size = static_cast<std::int64_t>(call.key_size) * call.columns;
    State<T, K, V> state;
    state.load(call, call.states.before + (static_cast<std::int64_t>(unit) * call.chunks + run) * size);
    if (this_thread() < chunk) ones[this_thread()] = 1;
    const int low = state.row() + this_lane() / 4, high = low + 8;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const Place at(call, unit, first + step);
      __syncthreads();
      start_rows<Share::threads_of_block>(q, call.q, at, call.key_size, call.keys_aligned);
      start_rows<Share::threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
      start_rows<Share::threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
      copies_commit();
      products.set(call, at, true);
      const float scale = state.stage(staged, call.normalised);
      copies_wait<0>();
      __syncthreads();
      products.template scale<true>(scaled_q, q);
      products.template scale<false>(scaled_k, k);
      __syncthreads();
      each_channel_block(scaled_q, scaled_k, q, k, products, [&](Strip<1>& sum, int early) {
        sum.each_pair([&](int r, int c, float x, float y) {
          const int query = Share::strip() * part + r, key = early * part + c;
          scores.set_pair(query, key, key <= query ? x : 0.0f, key < query ? y : 0.0f);
        });
      });
      __syncthreads();
      write(at, scale);
      if (step + 1 == count) return;
      state.scale(products.whole(low), products.whole(high));
      state.add(
          k, v, [&](auto& a, int p) { scale_rows_of<false, T>(a, products, p, nullptr); },
          call.normalised ? ones : nullptr);
    }
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(
    Shares<K>::threads_of_block,
    channel_blocks_of_multiprocessor<K, V>) void channel_outputs_kernel(const __grid_constant__ ScanCall call) {
  if (is_strong(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))) ChannelOutputs<T, K, V>{call}.walk();
}

}  // namespace
}  // namespace walk

template <class T>
void outputs_of_channel_runs(const ScanCall& call, const Launch& launch) {
  walk::with_channel_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_walk("scan outputs of runs", walk::channel_outputs_kernel<T, K, V>, call,
                      walk::Shares<K>::threads_of_block, walk::ChannelOutputsMemory<T, K, V>::bytes, launch);
  });
}

template void outputs_of_channel_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void outputs_of_channel_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
