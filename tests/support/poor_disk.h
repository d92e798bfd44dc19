// A disk that lacks what exFAT, FAT and mounted buckets lack: hard links, renaming without replacing, and flushing. It
// replaces functions of the C library in the whole program, so one file of an executable includes it, or the library
// that is preloaded into a command.
#pragma once
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace longstride::testing {

inline bool disk_is_poor = false;

struct PoorDisk {
  PoorDisk() { disk_is_poor = true; }
  ~PoorDisk() { disk_is_poor = false; }
};

// The answer of a poor disk, or that of the system.
template <class... A>
int on_disk(bool poor, int error, long call, A... arguments) {
  if (!poor) return static_cast<int>(::syscall(call, arguments...));
  errno = error;
  return -1;
}

}  // namespace longstride::testing

extern "C" {

int link(const char* from, const char* to) noexcept {
  using namespace longstride::testing;
  return on_disk(disk_is_poor, EPERM, SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  using namespace longstride::testing;
  return on_disk(disk_is_poor && flags != 0, EINVAL, SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int fsync(int file) {
  using namespace longstride::testing;
  return on_disk(disk_is_poor, EINVAL, SYS_fsync, file);
}
}
