#include "framework/models/decoder/generate/launch.cuh"

namespace longstride::generation {

template void launch_generate<__nv_bfloat16>(const GenerationProblem&, const PositionSpan&, int, std::size_t,
                                             const Launch&);

}  // namespace longstride::generation
