// Collectives on GPUs: collectives_nccl.cpp, or no_nccl.cpp in a build without CUDA or NCCL.
#pragma once
#include <memory>

#include "framework/comm/collectives.h"

namespace longstride {

std::unique_ptr<Collectives> make_nccl_collectives(Communicator& group);

}  // namespace longstride
