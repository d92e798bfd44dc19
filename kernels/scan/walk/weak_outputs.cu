// The outputs of runs with a weak decay per channel (channel_logs.cuh): as without decays, of rows that are scaled
// first. A chunk's state is relative to its middle as well.
#include "kernels/scan/walk/channel_logs.cuh"
#include "kernels/scan/walk/outputs.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct WeakOutputs : Outputs<T, K, V> {
  using Logs = ChannelLogs<K>;
  using Base = Outputs<T, K, V>;
  using Base::call, Base::unit, Base::run, Base::count, Base::staged, Base::scores, Base::ones, Base::q, Base::k,
      Base::v, Base::place;
  static_assert(2 * sizeof(typename Logs::Totals) <= sizeof(Near));

  __device__ typename Logs::Totals& totals(int step) const {
    return reinterpret_cast<typename Logs::Totals*>(memory + Base::Memory::near)[step % 2];
  }
  __device__ void walk() {
    State<T, K, V> state;
    this->start(0);
    Logs logs;
    logs.fetch(call, place(0));
    this->load(state);
    const int low = state.row() + this_lane() / 4, high = low + 8;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      logs.sum(totals(step));
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 1 < count;
      if (more) this->start(step + 1);
      logs.refer_to_middle(totals(step));
      logs.template scale<true>(q(step));
      logs.template scale<false>(k(step));
      if (more) logs.fetch(call, place(step + 1));
      state.scale(Logs::to_middle(totals(step), low), Logs::to_middle(totals(step), high));
      const float scale = state.stage(staged, call.normalised);
      __syncthreads();
      set_plain_scores<K>(scores, q(step), k(step));
      __syncthreads();
      if (more) {
        state.add(
            k(step), v(step), [](auto&, int) {}, call.normalised ? ones : nullptr);
        state.scale(Logs::from_middle(totals(step), low), Logs::from_middle(totals(step), high));
      }
      this->write(step, scale);
    }
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(Shares<K>::threads_of_block, blocks_of_multiprocessor<K, V>) void weak_outputs_kernel(
    const __grid_constant__ ScanCall call) {
  if (is_strong(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))) return;
  WeakOutputs<T, K, V>{{call}}.walk();
}

}  // namespace
}  // namespace walk

template <class T>
void outputs_of_weak_runs(const ScanCall& of_channels, const Launch& launch) {
  ScanCall call = of_channels;
  call.scaled = false;
  walk::with_channel_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_walk("scan outputs of runs", walk::weak_outputs_kernel<T, K, V>, call,
                      walk::Shares<K>::threads_of_block, walk::OutputsMemory<T, K, V>::bytes, launch);
  });
}

template void outputs_of_weak_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void outputs_of_weak_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
