#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/dropout_mask.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/dropout/dropout.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int groups = 2;  // of four elements, to a thread

// Thread by thread, the groups of four elements that share one draw; at the ends some of the four are not ours.
template <class In, class Out>
__global__ void __launch_bounds__(threads) dropout_kernel(const In* branch, const Out* residual, Out* y,
                                                          std::int64_t count, bool packed, const DropoutMask mask) {
  const std::uint32_t step = mask.step_word();
  const std::int64_t begin = mask.first_element, end = begin + count;
  const std::int64_t block = (begin / 4 + static_cast<std::int64_t>(blockIdx.x) * groups * threads + threadIdx.x) * 4;
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const std::int64_t element = block + g * threads * 4;
    if (element >= end) return;
    bool kept[4];
    mask.keep(element / 4, step, kept);
    const std::int64_t i = element - begin;
    if (packed && element + 4 <= end) {
      float in[4], out[4];
      load<4>(branch + i, in);
      if (residual != nullptr) load<4>(residual + i, out);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        out[k] =
            residual != nullptr ? add_dropped(out[k], in[k], kept[k], mask.scale) : dropped(in[k], kept[k], mask.scale);
      store<4>(y + i, out);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (i + k < 0 || i + k >= count) continue;
        const float in = to_float(branch[i + k]);
        y[i + k] = from_float<Out>(residual != nullptr ? add_dropped(to_float(residual[i + k]), in, kept[k], mask.scale)
                                                       : dropped(in, kept[k], mask.scale));
      }
    }
  }
}

}  // namespace

void dropout(const DropoutArgs& args, const Launch& launch) {
  const std::int64_t count = args.branch.count();
  if (count == 0) return;
  const DropoutMask mask(args);
  with_gpu_type(args.branch.dtype, [&](auto in_zero) {
    with_gpu_type(args.y.dtype, [&](auto out_zero) {
      using In = decltype(in_zero);
      using Out = decltype(out_zero);
      const bool packed = args.first_element % 4 == 0 && aligned(args.branch.data, 4 * sizeof(In)) &&
                          aligned(args.residual.data, 4 * sizeof(Out)) && aligned(args.y.data, 4 * sizeof(Out));
      const std::int64_t elements = args.first_element % 4 + count;
      run("dropout", dropout_kernel<In, Out>, {blocks_for(elements, 4 * groups * threads), threads}, launch,
          args.branch.as<const In>(), args.residual.as<const Out>(), args.y.as<Out>(), count, packed, mask);
    });
  });
}

}  // namespace longstride::kernels::cuda
