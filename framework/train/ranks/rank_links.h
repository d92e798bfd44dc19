// What connects a rank with others: with all of them, to add gradients up, and with those that share its sequences.
#pragma once
#include <memory>

#include "framework/comm/collectives.h"
#include "framework/train/ranks/batching.h"

namespace longstride {

// Whether ranks exchange gradients at all.
bool exchanges(const ParallelConfig& config, int ranks);

class RankLinks {
 public:
  // Every rank calls it. `comm` lives longer.
  RankLinks(Communicator& comm, const ParallelConfig& config, const Batching& batching, Device device);
  // For planning: rank `rank` of `ranks` ranks that are not there, so nothing moves.
  RankLinks(int rank, int ranks, const ParallelConfig& config, const Batching& batching);

  int rank() const { return rank_; }
  Collectives* all() const { return all_.get(); }        // null: nothing is exchanged
  SequenceGroup* group() const { return group_.get(); }  // null: this rank has whole sequences
  bool overlapped() const { return overlapped_; }

  void check() const;  // CommunicationError when an exchange under way has failed; from any thread
  void abort() const;  // ends exchanges that would never finish

 private:
  int rank_;
  bool overlapped_ = false;
  std::unique_ptr<Collectives> all_;
  std::unique_ptr<Communicator> near_;  // the ranks of this one's group
  std::unique_ptr<Collectives> group_;
};

}  // namespace longstride
