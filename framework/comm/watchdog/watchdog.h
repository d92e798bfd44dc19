// Ends the whole job, with one message, when a rank has died, is silent or hangs; no call of MPI or NCCL does that. A
// thread of each rank exchanges heartbeats with rank 0's over TCP connections of its own, whatever the rank's main
// thread waits for. It finds
//  - a rank that has ended without leave(): at once, its connection is closed;
//  - a rank that is silent (stopped, its host frozen, the network cut), on both sides of a cut: after `hang_seconds`;
//  - a rank that is behind the others in their common sequence of collective operations, and shows no sign of work for
//    `hang_seconds` (Communicator::entered, signs_of_life);
//  - all ranks waiting at the same point for much longer than ever before;
//  - what the network library reports (Communicator::pending_error).
// Rank 0 prints what happened and tells the others, and all end with _exit; if rank 0 itself is lost, rank 1 prints.
// The launcher then ends whatever is left.
#pragma once
#include <memory>

#include "framework/comm/communicator.h"

namespace longstride {

class Watchdog {
 public:
  // Collective. CommunicationError on every rank, naming one that cannot reach rank 0.
  Watchdog(Communicator& comm, double hang_seconds);
  // Without a call of leave() before, the other ranks consider this one lost.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Whether ranks must show progress: not while one legitimately works and the others wait for it, as in loading.
  void expect_progress(bool expected);
  // This rank has printed why it fails and is about to end the job: the others end with the same code and print
  // nothing.
  void announce_failure(int exit_code);
  // For a rank whose collective operation has failed, usually because another rank is lost: that is then printed, and
  // this call does not return. It returns after a few seconds if nothing is found.
  void find_cause();
  // Collective: the normal end of a job.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longstride
