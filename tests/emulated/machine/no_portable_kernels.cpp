// The kernels for other GPUs, which are not compiled here, and a sum in their place.
#include <stdexcept>

#include "kernels/attention/portable/portable.h"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/distance_attention/gpu/call.h"

namespace longstride::kernels::cuda {

void add_partials(const PartialSums& sums, const Launch&) {
  for (std::int64_t chunk = 0; chunk < sums.chunks; ++chunk)
    for (int which = 0; which < sums.totals; ++which)
      for (std::int64_t i = 0; i < sums.columns; ++i)
        sums.total[which][i] += sums.partials[(chunk * sums.totals + which) * sums.columns + i];
}

}  // namespace longstride::kernels::cuda

namespace longstride::kernels::cuda::portable {

void attention(const AttentionArgs&, const Launch&) { throw std::logic_error("no kernel for Hopper takes this"); }
void attention_backward(const AttentionBackwardArgs&, const float*, const Launch&) {
  throw std::logic_error("no kernel for Hopper takes this");
}

}  // namespace longstride::kernels::cuda::portable

#define LONGSTRIDE_ABSENT(name, T)                             \
  template <>                                                  \
  void name<T>(const distance::PortableCall&, const Launch&) { \
    throw std::logic_error("no kernel for Hopper takes this"); \
  }
#define LONGSTRIDE_ALL_ABSENT(name)      \
  LONGSTRIDE_ABSENT(name, float)         \
  LONGSTRIDE_ABSENT(name, __nv_bfloat16) \
  LONGSTRIDE_ABSENT(name, __half)

namespace longstride::kernels::cuda::portable {

LONGSTRIDE_ALL_ABSENT(forward)
LONGSTRIDE_ALL_ABSENT(dq)
LONGSTRIDE_ALL_ABSENT(dkdv)

}  // namespace longstride::kernels::cuda::portable

namespace longstride::kernels::cuda::distance {

LONGSTRIDE_ALL_ABSENT(dtable)
LONGSTRIDE_ALL_ABSENT(plain_forward)
LONGSTRIDE_ALL_ABSENT(plain_dq)
LONGSTRIDE_ALL_ABSENT(plain_dkdv)
LONGSTRIDE_ALL_ABSENT(plain_dtable)

}  // namespace longstride::kernels::cuda::distance
