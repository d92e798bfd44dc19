// The sums of runs with a decay per channel (sums.cu): keys are relative to their chunk's end, queries to its start.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/channel_logs.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct ChannelSumsMemory {
  static constexpr std::size_t left = 0, right = bytes_of_tile<T>(chunk, K), next = right + bytes_of_tile<T>(chunk, V),
                               totals = 2 * next, numbers = totals + 2 * sizeof(typename ChannelLogs<K>::Totals),
                               strong = numbers + 2 * sizeof(RowNumbers), bytes = strong + 16;
};

template <class T, int K, int V, bool Backwards>
struct ChannelSums {
  using Memory = ChannelSumsMemory<T, K, V>;
  using Logs = ChannelLogs<K>;
  static constexpr int threads_of_block = Shares<K>::threads_of_block;
  const ScanCall& call;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);

  __device__ Place place(int step) const { return {call, unit, Backwards ? first + count - 1 - step : first + step}; }
  __device__ Swizzled<T, K> left(int step) const {
    return {reinterpret_cast<T*>(memory + Memory::left + step % 2 * Memory::next)};
  }
  __device__ Swizzled<T, V> right(int step) const {
    return {reinterpret_cast<T*>(memory + Memory::right + step % 2 * Memory::next)};
  }
  __device__ typename Logs::Totals& totals(int step) const {
    return reinterpret_cast<typename Logs::Totals*>(memory + Memory::totals)[step % 2];
  }
  __device__ RowNumbers& numbers(int step) const {
    return reinterpret_cast<RowNumbers*>(memory + Memory::numbers)[step % 2];
  }
  __device__ void start(int step) const {
    const Place at = place(step);
    start_rows<threads_of_block>(left(step), Backwards ? call.q : call.k, at, call.key_size, call.keys_aligned);
    start_rows<threads_of_block>(right(step), Backwards ? call.dout : call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }
  __device__ void walk() {
    State<T, K, V> state;
    state.clear();
    const int low = state.row() + this_lane() / 4, high = low + 8;
    float whole_low = 1, whole_high = 1;
    bool strong = false;
    int& any_strong = *reinterpret_cast<int*>(memory + Memory::strong);
    if (this_thread() == 0) any_strong = 0;
    start(0);
    Logs logs;
    logs.fetch(call, place(0));
    RowNumbers::Fetched fetched = RowNumbers::fetch(call, place(0), Backwards);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      logs.sum(totals(step));
      if (call.normalised) numbers(step).set(fetched, Backwards);
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 1 < count;
      if (more) start(step + 1);
      Backwards ? logs.refer_to_start(totals(step)) : logs.refer_to_end(totals(step));
      logs.template scale<Backwards>(left(step));
      strong |= Logs::template strong<T>(totals(step));
      if (more) {
        logs.fetch(call, place(step + 1));
        fetched = RowNumbers::fetch(call, place(step + 1), Backwards);
      }
      __syncthreads();
      const float over_low = Logs::whole(totals(step), low), over_high = Logs::whole(totals(step), high);
      // Backwards the sum of later chunks passes this one's decays too.
      state.scale(over_low, over_high);
      whole_low *= over_low;
      whole_high *= over_high;
      const float* const inverse = Backwards && call.normalised ? numbers(step).inverse : nullptr;
      state.add(
          left(step), right(step), [&](auto& a, int p) { scale_by_rows<T>(a, inverse, p); },
          call.normalised ? numbers(step).of_z : nullptr);
    }
    if (strong) any_strong = 1;
    const std::int64_t number = static_cast<std::int64_t>(unit) * call.chunks + run;
    state.store(call, (Backwards ? call.gradients.behind : call.states.before) + number * call.key_size * call.columns);
    __syncthreads();
    if (this_thread() == 0) call.strong[number] = any_strong;
    if (this_lane() % 4 != 0) return;
    float* const whole = call.whole + number * call.key_size;
    if (low < call.key_size) whole[low] = whole_low;
    if (high < call.key_size) whole[high] = whole_high;
  }
};

template <class T, int K, int V, bool Backwards>
__global__ __launch_bounds__(Shares<K>::threads_of_block) void channel_sums_kernel(
    const __grid_constant__ ScanCall call) {
  ChannelSums<T, K, V, Backwards>{call}.walk();
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
