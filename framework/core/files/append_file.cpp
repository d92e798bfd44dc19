#include "framework/core/files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/disk.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"

namespace longstride {

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (descriptor_ < 0) throw file_error(path_, "open", errno);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::check_in_place() const {
  struct stat open = {}, there = {};
  if (::fstat(descriptor_, &open) != 0) throw file_error(path_, "examine the file", errno);
  const bool found = ::stat(path_.c_str(), &there) == 0;
  if (!found && errno != ENOENT && errno != ENOTDIR) throw file_error(path_, "examine the file", errno);
  if (!found || open.st_dev != there.st_dev || open.st_ino != there.st_ino)
    throw user_error("{}: was removed, renamed or replaced while it was being written", printable(path_));
  const std::string directory = directory_of(path_);
  if (::access(directory.c_str(), W_OK) != 0) throw file_error(directory, "write to the directory any longer", errno);
}

void AppendFile::append(std::string_view text) {
  check_in_place();
  struct stat before = {};
  ::fstat(descriptor_, &before);
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      const bool cut = S_ISREG(before.st_mode) && ::ftruncate(descriptor_, before.st_size) == 0;
      static_cast<void>(cut);  // readers also skip a line that is cut short
      throw file_error(path_, "write", error);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::flush() {
  if (const int error = flush_to_disk(descriptor_); error != 0) throw file_error(path_, "flush to disk", error);
}

}  // namespace longstride
