// Only one process trains into a run directory at a time. RUN/lock names it: its host, its process number and a counter
// that one of its threads increments every few seconds.
//
// A lock outlives a killed process. On the same machine this is detected at once, since the process is gone. From
// another host only the counter is visible: if it does not change for `patience`, the lock is stale. No clocks are
// compared, and only link, rename and unlink must be atomic, so the lock also works on NFS. Without hard links (exFAT,
// mounted buckets) O_EXCL takes link's place.
#pragma once
#include <memory>
#include <string>

namespace longstride {

struct RunLockTiming {
  double beat = 3;       // seconds between two signs of life
  double patience = 20;  // seconds without one after which another host's lock is stale
};

class RunLock {
 public:
  // Takes the lock of `directory`, which must exist. If another host left a lock, waits up to `patience` for a sign of
  // life. UserError when another process holds the lock, naming it, or when the lock cannot be written.
  explicit RunLock(const std::string& directory, RunLockTiming timing = {});
  // Releases the lock, unless another process has taken it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // UserError once another process has taken the lock, because this one was stopped for longer than `patience`, or the
  // lock is gone with its directory. Cheap.
  void check() const;
  // The same as an answer, after a look at the lock. One that cannot be read now counts as held.
  bool held() const;

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace longstride
