#include "kernels/scan/gradients.cuh"

namespace longstride::kernels::cuda::scanning {

template <class T>
void gradients(const ScanCall& call, const Launch& launch) {
  call.channels ? gradients_of_channels<T>(call, launch) : launch_gradients<T, false>(call, launch);
}

template void gradients<float>(const ScanCall&, const Launch&);
template void gradients<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
