// Preloaded into the ranks of a job (faults.sh): while the file SLOW_DISK exists, the disk of rank 0 takes
// SLOW_SECONDS to flush a file or to make a directory.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

template <class F>
F* next(F*, const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

void wait_for_the_disk() {
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *slow = std::getenv("SLOW_DISK");
  if (rank == nullptr || std::strcmp(rank, "0") != 0 || slow == nullptr || ::access(slow, F_OK) != 0) return;
  const double seconds = std::atof(std::getenv("SLOW_SECONDS"));
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
}

}  // namespace

extern "C" int fsync(int file) {
  wait_for_the_disk();
  return next(&fsync, "fsync")(file);
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  wait_for_the_disk();
  return next(&mkdir, "mkdir")(path, mode);
}
