#include "framework/core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::string_view prefix = ".tmp-";

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT ? "; free some space and try again" : "";
  throw user_error("{}: cannot {}: {}{}", path, action, std::strerror(error), advice);
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string temporary_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return (std::filesystem::path(parent_of(path)) / fmt::format("{}{}-{}", prefix, name, ::getpid())).string();
}

// Makes the names in a directory survive a power failure. File systems that cannot say so.
void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(path, "open the directory", errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail(path, "flush the directory to disk", error);
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(temporary_of(path_)) {
  std::error_code absent;
  if (std::filesystem::is_directory(path_, absent))
    throw user_error("{}: is a directory, but a file is to be written", path_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(path_, "create the file", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t count) {
  LONGSTRIDE_CHECK(descriptor_ >= 0, "{} is written after commit", path_);
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(count, std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "write", errno);
    next += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  LONGSTRIDE_CHECK(descriptor_ >= 0, "{} is committed twice", path_);
  if (::fsync(descriptor_) != 0) fail(path_, "flush to disk", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "rename the finished file", errno);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_directory(parent_of(path_));
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

AtomicDirectory::AtomicDirectory(std::string final_path)
    : final_(std::move(final_path)), temporary_(temporary_of(final_)) {
  remove_quietly(temporary_);
  if (::mkdir(temporary_.c_str(), 0755) != 0) fail(final_, "create the directory", errno);
}

AtomicDirectory::~AtomicDirectory() {
  if (!committed_) remove_quietly(temporary_);
}

void AtomicDirectory::commit() {
  LONGSTRIDE_CHECK(!committed_, "{} is committed twice", final_);
  sync_directory(temporary_);
  // rename replaces an empty directory only, so an older one steps aside first.
  const std::string aside = temporary_ + "-replaced";
  const bool replaces = ::rename(final_.c_str(), aside.c_str()) == 0;
  if (!replaces && errno != ENOENT) fail(final_, "replace what was there", errno);
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
    const int error = errno;
    if (replaces) static_cast<void>(::rename(aside.c_str(), final_.c_str()));
    fail(final_, "rename the finished directory", error);
  }
  committed_ = true;
  sync_directory(parent_of(final_));
  if (replaces) remove_quietly(aside);
}

void remove_temporaries(const std::string& directory) {
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(directory, absent))
    if (entry.path().filename().string().starts_with(prefix)) remove_quietly(entry.path().string());
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make us wait
  if (descriptor_ < 0) fail(path_, "open", errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (error != 0) fail(path_, "look at the file", error);
  throw user_error("{}: is {}, but a file is needed", path_,
                   S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* out, std::size_t count) const {
  auto* next = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(count, std::size_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read", errno);
    if (got == 0) throw user_error("{}: ends at byte {}, where more is expected", path_, offset);
    next += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::string& path) {
  const InputFile file(path);
  std::string content(file.size(), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

}  // namespace longstride
