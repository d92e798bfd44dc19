// Replaces the GPU collectives, at link time, in a build without CUDA or NCCL.
#include "framework/comm/collectives_nccl.h"
#include "framework/core/errors.h"

namespace longstride {

bool built_with_nccl() { return false; }

std::unique_ptr<Collectives> make_nccl_collectives(Communicator&) {
  throw user_error(
      "training on several GPUs needs NCCL, which this build lacks; reconfigure where NCCL is installed, or run one "
      "rank");
}

}  // namespace longstride
