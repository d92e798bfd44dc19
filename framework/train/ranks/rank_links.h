// A rank's connections: to all others, to sum gradients, and to those that share its sequences.
#pragma once
#include <memory>

#include "framework/comm/collectives.h"
#include "framework/train/ranks/batching.h"

namespace longstride {

// True if gradients are exchanged at all.
bool exchanges(const ParallelConfig& config, int ranks);

class RankLinks {
 public:
  // Every rank calls it. `comm` must outlive this object.
  RankLinks(Communicator& comm, const ParallelConfig& config, const Batching& batching, Device device);
  // For planning: pretends to be rank `rank` of `ranks`; nothing is sent.
  RankLinks(int rank, int ranks, const ParallelConfig& config, const Batching& batching);

  int rank() const { return rank_; }
  Collectives* all() const { return all_.get(); }        // null: nothing is exchanged
  SequenceGroup* group() const { return group_.get(); }  // null: this rank holds whole sequences
  bool overlapped() const { return overlapped_; }

  void check() const;  // CommunicationError when an exchange in progress has failed; from any thread
  void abort() const;  // ends exchanges that would never finish

 private:
  int rank_;
  bool overlapped_ = false;
  std::unique_ptr<Collectives> all_;
  std::unique_ptr<Communicator> near_;  // this rank's group
  std::unique_ptr<Collectives> group_;
};

}  // namespace longstride
