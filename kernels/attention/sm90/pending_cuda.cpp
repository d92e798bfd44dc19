// Until Hopper's own kernels are here, they support nothing.
#include <stdexcept>

#include "kernels/attention/sm90/attention_sm90.h"

namespace longstride::kernels::cuda::sm90 {

bool supports(const AttentionArgs&) { return false; }
bool supports(const AttentionBackwardArgs&) { return false; }
void attention(const AttentionArgs&, const Launch&) { throw std::logic_error("no sm90 attention"); }
void attention_backward(const AttentionBackwardArgs&, const float*, const Launch&) {
  throw std::logic_error("no sm90 attention");
}

}  // namespace longstride::kernels::cuda::sm90
