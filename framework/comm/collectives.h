// Exchanges within a group of ranks, on the memory that training computes in and in stream order. On the CPU they use
// MPI (collectives.cpp) and are complete when a call returns. On GPUs they use NCCL (collectives_nccl.cpp): calls only
// enqueue work on the stream and may be captured in a graph. Sums are bit-identical on every rank and in every run.
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
  // Tensors are contiguous, and where one is divided into pieces, size() divides its number of elements. Sums are of
  // f32 or f64 on the CPU, and of f32, f64, bf16 or f16 on GPUs.
  //
  // values[i] = sum over ranks.
  virtual void all_reduce_sum(const Tensor& values, void* stream) = 0;
  // `values` has size() equal pieces; every rank gets the sum of its own piece, in place.
  virtual void reduce_scatter_sum(const Tensor& values, void* stream) = 0;
  // size() equal pieces of `values`: every rank has its own in place before, and all after.
  virtual void all_gather(const Tensor& values, void* stream) = 0;
  // Piece r of `from` becomes piece rank() of rank r's `to`.
  virtual void all_to_all(const Tensor& from, const Tensor& to, void* stream) = 0;

  // This group as the ranks that hold a sequence together.
  int index() const override { return rank(); }
  void exchange(const Context& ctx, const Tensor& from, const Tensor& to) override {
    all_to_all(from, to, ctx.launch.stream);
  }

  // For the watchdog: CommunicationError if an exchange in progress has failed. Callable from any thread; does not
  // wait.
  virtual void check() {}
  // Ends exchanges that would never finish. Callable from any thread; only the destructor may be called afterwards.
  virtual void abort() {}
};

// `group` must outlive the result. CommunicationError when NCCL cannot start; UserError in a build without it.
std::unique_ptr<Collectives> make_collectives(Communicator& group, Device device);

bool built_with_nccl();

// Gives this rank the GPU of its host that its local rank selects, and makes it current. UserError, naming the ranks,
// when two of one host would share a GPU. Hosts that are containers or network namespaces of one machine may share one,
// with a warning. Every rank calls it.
void choose_gpu(Communicator& comm);

// For the table of settings: the number of hosts, and how the ranks are connected, e.g. "NVLink". Every rank calls
// both.
int count_nodes(Communicator& comm);
std::string interconnect(Communicator& comm, Device device);
// True if all ranks are GPUs of one host, linked pairwise by NVLink.
bool all_on_nvlink(Communicator& comm, Device device);

}  // namespace longstride
