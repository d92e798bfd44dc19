#include "framework/models/sparse_transformer/generate/launch.cuh"

namespace longstride::kernels::cuda::generation {

template void launch_generate<float>(const Problem&, const Positions&, int, std::size_t, const Launch&);

}  // namespace longstride::kernels::cuda::generation
