// Ends the whole job, with one message, when a rank has died, is silent or hangs; MPI and NCCL do not do that. On each
// rank a thread exchanges heartbeats with rank 0 over a separate TCP connection, whatever the main thread is waiting
// for. It detects
//  - a rank that has ended without leave(): at once, because its connection closes;
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
  // If leave() has not been called, the other ranks consider this one lost.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Says that ranks must show progress, or need not. Set to false while the others legitimately wait for one rank, as
  // during loading.
  void expect_progress(bool expected);
  // This rank has printed why it failed and is about to end the job: the others end with the same code and print
  // nothing.
  void announce_failure(int exit_code);
  // For a rank whose collective operation has failed, usually because another rank is lost. If a cause is found, it is
  // printed and this call does not return; otherwise it returns after a few seconds.
  void find_cause();
  // Collective: the normal end of a job.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longstride
