// Ends the whole job, with one message, when a rank has died, is silent or hangs; no call of MPI or NCCL does that by
// itself. A thread of each rank exchanges heartbeats with rank 0's over TCP connections of its own, whatever the rank's
// main thread waits for. Found are
//  - a rank that has ended without leave(): at once, its connection is closed;
//  - a rank that is silent (stopped, its host frozen, the network cut), on both sides of a cut: after `hang_seconds`;
//  - a rank that is behind the others in their common sequence of collective operations, and shows no sign of work for
//    `hang_seconds` (Communicator::entered, signs_of_life);
//  - all ranks waiting at the same place for much longer than they ever have;
//  - what the network library reports (Communicator::pending_error).
// Rank 0 prints what happened and tells the others, and all end with _exit; when it is rank 0 that is lost, rank 1
// prints. Then the launcher ends whatever is left.
#pragma once
#include <memory>

#include "framework/comm/communicator.h"

namespace longstride {

class Watchdog {
 public:
  // Collective. CommunicationError on every rank, naming one that cannot reach rank 0.
  Watchdog(Communicator& comm, double hang_seconds);
  // Without leave() before, the other ranks take this one as lost.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Whether ranks must show progress. Not while one legitimately works and the others wait for it, as in loading.
  void expect_progress(bool expected);
  // This rank has said why it fails, and is about to end the job: the others end with the same code and no other word.
  void announce_failure(int exit_code);
  // For a rank whose collective operation has failed: most often because another rank is lost, which is then said, and
  // this call does not return. Returns after a few seconds when nothing is found.
  void find_cause();
  // Collective: the end of a job in peace.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longstride
