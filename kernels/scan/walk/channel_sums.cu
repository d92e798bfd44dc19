// The sums of runs with a decay per channel (sums.cu).
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/channel_decays.cuh"
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct ChannelSumsMemory {
  static constexpr std::size_t left = 0, right = bytes_of_tile<T>(chunk, K),
                               products = right + bytes_of_tile<T>(chunk, V),
                               numbers = products + (sizeof(ChannelProducts<T, K>) + 15) / 16 * 16,
                               bytes = numbers + sizeof(RowNumbers);
};

template <class T, int K, int V, bool Backwards>
__global__ __launch_bounds__(Shares<K>::threads_of_block) void channel_sums_kernel(
    const __grid_constant__ ScanCall call) {
  using Memory = ChannelSumsMemory<T, K, V>;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  const Swizzled<T, K> left{reinterpret_cast<T*>(memory + Memory::left)};
  const Swizzled<T, V> right{reinterpret_cast<T*>(memory + Memory::right)};
  auto& products = *reinterpret_cast<ChannelProducts<T, K>*>(memory + Memory::products);
  RowNumbers& numbers = *reinterpret_cast<RowNumbers*>(memory + Memory::numbers);
  State<T, K, V> state;
  state.clear();
  const int low = state.row() + this_lane() / 4, high = low + 8;
  float whole_low = 1, whole_high = 1;
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
    const Place at(call, unit, Backwards ? first + count - 1 - step : first + step);
    __syncthreads();
    start_rows<Shares<K>::threads_of_block>(left, Backwards ? call.q : call.k, at, call.key_size, call.keys_aligned);
    start_rows<Shares<K>::threads_of_block>(right, Backwards ? call.dout : call.v, at, call.value_size,
                                            call.values_aligned);
    copies_commit();
    products.set(call, at, false);
    if (call.normalised) numbers.set(RowNumbers::fetch(call, at, Backwards), Backwards);
    copies_wait<0>();
    __syncthreads();
    const float over_low = products.whole(low), over_high = products.whole(high);
    state.scale(over_low, over_high);
    whole_low *= over_low;
    whole_high *= over_high;
    state.add(
        left, right,
        [&](auto& a, int p) {
          scale_rows_of<Backwards, T>(a, products, p, Backwards && call.normalised ? numbers.inverse : nullptr);
        },
        call.normalised ? numbers.of_z : nullptr);
  }
  const std::int64_t number = static_cast<std::int64_t>(unit) * call.chunks + run;
  state.store(call, (Backwards ? call.gradients.behind : call.states.before) + number * call.key_size * call.columns);
  if (this_lane() % 4 != 0) return;
  float* const whole = call.whole + number * call.key_size;
  if (low < call.key_size) whole[low] = whole_low;
  if (high < call.key_size) whole[high] = whole_high;
}

}  // namespace
}  // namespace walk

template <class T>
void sum_channel_runs(const ScanCall& call, bool backwards, const Launch& launch) {
  walk::with_channel_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    const auto start = [&](auto kernel) {
      walk::launch_walk("scan sums of runs", kernel, call, walk::Shares<K>::threads_of_block,
                        walk::ChannelSumsMemory<T, K, V>::bytes, launch);
    };
    backwards ? start(walk::channel_sums_kernel<T, K, V, true>) : start(walk::channel_sums_kernel<T, K, V, false>);
  });
}

template void sum_channel_runs<__nv_bfloat16>(const ScanCall&, bool, const Launch&);
template void sum_channel_runs<__half>(const ScanCall&, bool, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
