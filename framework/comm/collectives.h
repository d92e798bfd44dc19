// Exchanges of a group of ranks in the memory that training computes in, in the order of a stream. On the CPU they use
// MPI (collectives.cpp) and are complete when a call returns. On GPUs they use NCCL (collectives_nccl.cpp): calls only
// put work on the stream, and may be captured in a graph. Sums have the same bits on every rank and in every run.
//
//   auto group = make_collectives(comm, Device::cuda);     every rank calls it, after choose_gpu(comm)
//   group->reduce_scatter_sum(gradients, stream);
#pragma once
#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/core/context.h"

namespace longstride {

class Collectives : public SequenceGroup {
 public:
  virtual int rank() const = 0;
  // values[i] = sum over ranks.
  virtual void all_reduce_sum(const Tensor& values, void* stream) = 0;
  // `values` has size() equal pieces; every rank gets the sum of its own piece, in place.
  virtual void reduce_scatter_sum(const Tensor& values, void* stream) = 0;
  // size() equal pieces of `values`: every rank has its own in place before, and all after.
  virtual void all_gather(const Tensor& values, void* stream) = 0;
  // Piece r of `from` becomes piece rank() of rank r's `to`.
  virtual void all_to_all(const Tensor& from, const Tensor& to, void* stream) = 0;

  // As the ranks that hold a sequence together.
  int index() const override { return rank(); }
  void exchange(const Context& ctx, const Tensor& from, const Tensor& to) override {
    all_to_all(from, to, ctx.launch.stream);
  }

  // For a watchdog, from any thread, without waiting: CommunicationError when an exchange under way has failed.
  virtual void check() {}
  // Ends exchanges that would never finish, from any thread; only the destructor may follow.
  virtual void abort() {}
};

// `group` lives longer. CommunicationError when NCCL cannot start; UserError in a build without it.
std::unique_ptr<Collectives> make_collectives(Communicator& group, Device device);

bool built_with_nccl();

// Gives this rank a GPU of its host, its local rank's, and makes it the current one. UserError, naming the ranks, when
// two of them would share one. Every rank calls it.
void choose_gpu(Communicator& comm);

// Every rank calls them. For the table of settings: the hosts, and how the ranks are connected, e.g. "NVLink".
int count_nodes(Communicator& comm);
std::string interconnect(Communicator& comm, Device device);
// Whether all ranks are GPUs of one host, linked pairwise by NVLink.
bool all_on_nvlink(Communicator& comm, Device device);

}  // namespace longstride
