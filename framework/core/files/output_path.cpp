#include "framework/core/files/output_path.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// /dev/stdout leads to /proc/self/fd/1, a link that names a descriptor: its text need not be a path.
bool names_descriptor(const fs::path& link) {
  struct statfs system = {};
  return ::statfs(link.parent_path().c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

std::string follow_links(const std::string& path) {
  constexpr int most = 40;  // the kernel's own limit
  fs::path at = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(at, error) && !names_descriptor(at); ++links) {
    if (links == most) throw file_error(path, "follow the link", ELOOP);
    const fs::path target = fs::read_symlink(at, error);
    if (error) throw file_error(path, "follow the link", error.value());
    at = target.is_absolute() ? target : at.parent_path() / target;
  }
  return at.string();
}

OutputPath resolve_output(const std::string& path) {
  OutputPath output{follow_links(path), false};
  struct stat status = {};
  if (::stat(output.path.c_str(), &status) != 0) return output;  // a new file; creating it reports any error
  const mode_t mode = status.st_mode;
  if (S_ISDIR(mode)) throw user_error("{}: is a directory, but a file is to be written", printable(path));
  std::error_code error;
  const bool descriptor = fs::is_symlink(output.path, error);
  output.stream = descriptor || S_ISFIFO(mode) || S_ISCHR(mode);
  if (!output.stream && !S_ISREG(mode))
    throw user_error("{}: is a {}, but a file is to be written", printable(path), S_ISBLK(mode) ? "disk" : "socket");
  return output;
}

int open_stream(const OutputPath& output) {
  const fs::path path = output.path;
  std::error_code absent;
  std::fflush(nullptr);  // earlier output comes first
  // Duplicates the descriptor, so that later output follows; a newly opened one would have its own position.
  int number = -1;
  const bool own = names_descriptor(path) && fs::equivalent(path.parent_path(), "/proc/self/fd", absent) &&
                   std::sscanf(path.filename().c_str(), "%d", &number) == 1;
  return own ? ::fcntl(number, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
}

}  // namespace longstride
