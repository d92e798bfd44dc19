// The GPUs' collectives: collectives_nccl.cpp, or no_nccl.cpp in a build that has no CUDA or no NCCL.
#pragma once
#include <memory>

#include "framework/comm/collectives.h"

namespace longstride {

std::unique_ptr<Collectives> make_nccl_collectives(Communicator& group);

}  // namespace longstride
