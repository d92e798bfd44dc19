// The kernels for other GPUs, which are not compiled here.
#include <stdexcept>

#include "kernels/attention/portable/portable.h"

namespace longstride::kernels::cuda::portable {

void attention(const AttentionArgs&, const Launch&) { throw std::logic_error("no kernel for Hopper takes this"); }
void attention_backward(const AttentionBackwardArgs&, const float*, const Launch&) {
  throw std::logic_error("no kernel for Hopper takes this");
}

}  // namespace longstride::kernels::cuda::portable
