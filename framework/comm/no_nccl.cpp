// Stands in, at link time, for the GPUs' collectives of a build that has no CUDA or no NCCL.
#include "framework/comm/collectives_nccl.h"
#include "framework/core/errors.h"

namespace longstride {

bool built_with_nccl() { return false; }

std::unique_ptr<Collectives> make_nccl_collectives(Communicator&) {
  throw user_error(
      "several GPUs need NCCL, which this build has not: configure it where NCCL is found, or run one rank");
}

}  // namespace longstride
