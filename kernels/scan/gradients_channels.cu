// A unit of its own, as it takes as long to compile as all others.
#include "kernels/scan/gradients.cuh"

namespace longstride::kernels::cuda::scanning {

template <class T>
void gradients_of_channels(const ScanCall& call, const Launch& launch) {
  launch_gradients<T, true>(call, launch);
}

template void gradients_of_channels<float>(const ScanCall&, const Launch&);
template void gradients_of_channels<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients_of_channels<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
