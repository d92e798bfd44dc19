// One process trains into a run directory at a time. RUN/lock names the process that does: its host, its number and a
// counter that a thread of it raises every few seconds.
//
// A lock outlives its process when that is killed. On the same machine such a lock is told at once, since the process
// is gone. From another host only the counter can be seen: a lock of which it stands still for `patience` is stale. No
// clocks are compared, and nothing but link, rename and unlink has to be atomic, so the lock holds on NFS too.
#pragma once
#include <memory>
#include <string>

namespace longstride {

struct RunLockTiming {
  double beat = 3;       // seconds between two signs of life
  double patience = 20;  // seconds without one, after which the lock of another host is stale
};

class RunLock {
 public:
  // Takes the lock of `directory`, which is there, and waits up to `patience` for a sign of life when another host left
  // a lock. UserError, naming the process that holds the lock, when there is one, or when the lock cannot be written.
  explicit RunLock(const std::string& directory, RunLockTiming timing = {});
  // Gives the lock back, unless another process has taken it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // UserError once another process has taken the lock, because this one was stopped for longer than `patience`, or the
  // lock is gone with its directory. Cheap.
  void check() const;

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace longstride
