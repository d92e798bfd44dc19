#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/gradients.cuh"

namespace longstride::kernels::cuda::scanning {
namespace {

template <class T, bool Channels>
__global__ __launch_bounds__(threads, Channels || sizeof(T) == 4 ? 1 : 2) void gradients_kernel(const ScanCall call) {
  Gradients<T, Channels>(call, Place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))).run_all();
}

}  // namespace

template <class T>
void gradients(const ScanCall& call, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units));
  const auto start = [&](auto kernel, std::size_t bytes) {
    allow_shared(kernel, bytes);
    run("scan gradients", kernel, {grid, threads, bytes}, launch, call);
  };
  const auto bytes = [&](auto memory) {
    return call.e.data != nullptr ? decltype(memory)::with_delta : decltype(memory)::bytes;
  };
  if (call.channels)
    start(gradients_kernel<T, true>, bytes(GradientsMemory<T, true>{}));
  else
    start(gradients_kernel<T, false>, bytes(GradientsMemory<T, false>{}));
}

template void gradients<float>(const ScanCall&, const Launch&);
template void gradients<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
