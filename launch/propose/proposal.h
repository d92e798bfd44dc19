// A recipe for given data on this machine: an existing recipe of the same kind of data, changed where the data, the
// memory or the time say so. Every change has its reason, which becomes a comment.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/core/device/device.h"

namespace longstride {

struct ProposalRequest {
  std::string data;     // a prepared dataset
  std::string like;     // the recipe to begin with; empty: the one for this kind of data and device
  double minutes = 10;  // time of training, with evaluations and samples
  Device device = Device::cpu;
};

struct Proposal {
  std::string name, like;
  std::string text;  // YAML with comments, which `train` takes
  std::int64_t steps = 0, global_batch = 0, micro_batch = 0, context = 0;
  double lr = 0;
  double milliseconds = 0;  // time of a step, measured here
  double passes = 0;        // over train
  const char* unit = "byte";
};

// UserError if the data cannot be read or holds too little, if no recipe is known for it, or if nothing of it fits.
Proposal propose(const ProposalRequest& request, Communicator& comm);

}  // namespace longstride
