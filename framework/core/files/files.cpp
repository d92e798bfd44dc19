#include "framework/core/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "framework/core/files/disk.h"
#include "framework/core/files/temporaries.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  throw file_error(path, action, error);
}

// Makes the names in a directory survive a power failure.
void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(path, "open the directory", errno);
  const int error = flush_to_disk(descriptor);
  ::close(descriptor);
  if (error != 0) fail(path, "flush the directory to disk", error);
}

std::int64_t modified_at(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

UserError file_error(const std::string& path, const char* action, int error) {
  const char* advice = "";
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space and try again";
  if ((error == EACCES || error == EROFS) && std::strcmp(action, "create the file") == 0)
    advice = "; choose a folder that can be written to";
  return user_error("{}: cannot {}: {}{}", printable(path), action, std::strerror(error), advice);
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), output_(resolve_output(path_)) {
  if (!output_.stream) create_temporary();
}

// Private files stay private: the old file's mode is set before anything is written.
void AtomicFile::create_temporary() {
  remove_abandoned_temporaries(directory_of(output_.path));
  temporary_ = longstride::temporary_path(output_.path);
  ::unlink(temporary_.c_str());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(path_, "create the file", errno);
  struct stat old = {};
  if (::stat(output_.path.c_str(), &old) != 0) return;
  const bool given = ::fchown(descriptor_, old.st_uid, old.st_gid) == 0;  // only root can give a file away
  static_cast<void>(given);
  static_cast<void>(::fchmod(descriptor_, old.st_mode & 0777));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty() && !committed_) ::unlink(temporary_.c_str());
}

const std::string& AtomicFile::temporary_path() const {
  if (output_.stream) throw user_error("{}: is a pipe or a device, but this needs a regular file", printable(path_));
  return temporary_;
}

// Opened at the first write, so that a pipe waits for its reader only when there is something to read.
void AtomicFile::open_late() {
  if (descriptor_ < 0) descriptor_ = open_stream(output_);
  if (descriptor_ < 0) fail(path_, "open", errno);
}

void AtomicFile::write(const void* bytes, std::size_t count) {
  LONGSTRIDE_CHECK(!committed_, "{} is written after commit", path_);
  open_late();
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(count, std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "write", errno);
    next += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit(bool replace) {
  LONGSTRIDE_CHECK(!committed_, "{} is committed twice", path_);
  const bool file = !output_.stream;
  if (const int error = file ? flush_to_disk(descriptor_) : 0; error != 0) fail(path_, "flush to disk", error);
  open_late();
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(path_, "close", errno);
  if (file) give_name(replace);
  committed_ = true;
  if (file) sync_directory(directory_of(output_.path));
}

void AtomicFile::give_name(bool replace) {
  const std::string &from = temporary_, &to = output_.path;
  if (replace && ::rename(from.c_str(), to.c_str()) != 0) fail(path_, "rename the finished file", errno);
  const int error = replace ? 0 : rename_to_new(from, to);
  if (error == EEXIST)
    throw user_error("{}: was written by another program in the meantime, and is kept; choose another name",
                     printable(path_));
  if (error != 0) fail(path_, "rename the finished file", error);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

AtomicDirectory::AtomicDirectory(std::string final_path)
    : final_(follow_links(final_path)), temporary_(temporary_path(final_)) {
  std::error_code absent;
  if (std::filesystem::exists(final_, absent) && !std::filesystem::is_directory(final_, absent))
    throw user_error("{}: is a file, but a directory is to be written", printable(final_path));
  remove_quietly(temporary_);
  if (::mkdir(temporary_.c_str(), 0755) != 0) fail(final_, "create the directory", errno);
}

AtomicDirectory::~AtomicDirectory() {
  if (!committed_) remove_quietly(temporary_);
}

void AtomicDirectory::commit() {
  LONGSTRIDE_CHECK(!committed_, "{} is committed twice", final_);
  sync_directory(temporary_);
  // rename only replaces an empty directory, so an older one is moved aside first.
  const std::string aside = temporary_ + "-replaced";
  const bool replaces = ::rename(final_.c_str(), aside.c_str()) == 0;
  if (!replaces && errno != ENOENT) fail(final_, "replace the old directory", errno);
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
    const int error = errno;
    if (replaces) static_cast<void>(::rename(aside.c_str(), final_.c_str()));
    fail(final_, "rename the finished directory", error);
  }
  committed_ = true;
  sync_directory(directory_of(final_));
  if (replaces) remove_quietly(aside);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // do not wait on a pipe
  if (descriptor_ < 0) fail(path_, "open", errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    modified_ = modified_at(status);
    return;
  }
  ::close(descriptor_);
  if (error != 0) fail(path_, "examine the file", error);
  throw user_error("{}: is {}, but a file is needed", printable(path_),
                   S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* out, std::size_t count) const {
  auto* next = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(count, std::size_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read", errno);
    if (got == 0) throw user_error("{}: ends at byte {}, where more is expected", printable(path_), offset);
    next += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

void InputFile::check_unchanged() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) fail(path_, "examine the file", errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size != size_)
    throw user_error("{}: had {} bytes when it was opened and has {} now; do not change a file while it is being read",
                     path_, size_, size);
  if (modified_at(status) != modified_)
    throw user_error("{}: was changed while it was being read; check its content and start again", path_);
}

std::vector<std::string> entries_of(const std::string& folder, std::error_code& error) {
  std::vector<std::string> paths;
  error.clear();
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path().string());
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) error.clear();
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths = entries_of(folder, error);
  if (error) fail(folder, "read the folder", error.value());
  return paths;
}

std::string read_file(const std::string& path) {
  const InputFile file(path);
  std::string content(file.size(), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

}  // namespace longstride
