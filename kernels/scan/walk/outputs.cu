// The outputs of runs with a decay per head, or none.
#include "kernels/scan/walk/outputs.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
__global__ __launch_bounds__(Shares<K>::threads_of_block, blocks_of_multiprocessor<K, V>) void outputs_kernel(
    const __grid_constant__ ScanCall call) {
  Outputs<T, K, V>{call}.walk();
}

}  // namespace
}  // namespace walk

template <class T>
void outputs_of_runs(const ScanCall& call, const Launch& launch) {
  walk::with_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_walk("scan outputs of runs", walk::outputs_kernel<T, K, V>, call, walk::Shares<K>::threads_of_block,
                      walk::OutputsMemory<T, K, V>::bytes, launch);
  });
}

template void outputs_of_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void outputs_of_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
