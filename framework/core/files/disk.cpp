#include "framework/core/files/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>  // renameat2
#include <cstring>
#include <filesystem>

#include "framework/core/files/files.h"

namespace longstride {
namespace {

bool no_such_function(int error) { return error == EINVAL || error == ENOTSUP || error == ENOSYS; }

int rename_without_replacing(const std::string& from, const std::string& to) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
}

bool cannot_flush(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  const bool cannot = descriptor >= 0 && ::fsync(descriptor) != 0 && no_such_function(errno);
  if (descriptor >= 0) ::close(descriptor);
  return cannot;
}

}  // namespace

int flush_to_disk(int descriptor) { return ::fsync(descriptor) == 0 || no_such_function(errno) ? 0 : errno; }

int rename_to_new(const std::string& from, const std::string& to) {
  const int error = rename_without_replacing(from, to);
  if (error == 0 || !no_such_function(error)) return error;
  if (::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()) == 0 ? 0 : errno;
  if (errno == EEXIST || ::access(to.c_str(), F_OK) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

DiskLimits limits_of_disk(const std::string& folder) {
  namespace fs = std::filesystem;
  const AtomicDirectory place(folder + "/longstride-disk");  // never committed
  const std::string file = place.path() + "/file", other = place.path() + "/other", inner = place.path() + "/folder";
  write_file_atomically(file, "longstride\n");
  DiskLimits found;
  const auto note = [&](bool missing, const char* what) {
    if (missing) found.lacks.emplace_back(what);
  };
  if (::link(file.c_str(), other.c_str()) != 0) {
    note(true, "hard links");
    note(no_such_function(rename_without_replacing(file, other)), "renaming without replacing");
  }
  std::error_code error;
  fs::create_directory(inner, error);
  if (!error) write_file_atomically(inner + "/file", "longstride\n");
  note(cannot_flush(inner + "/file", O_WRONLY), "flushing of files");
  note(cannot_flush(inner, O_RDONLY | O_DIRECTORY), "flushing of folders");
  if (!error) fs::rename(inner, inner + "-renamed", error);
  if (error) found.folders = error.message();
  return found;
}

}  // namespace longstride
