// Files and directories that appear whole or not at all: written next to the final name under a temporary one
// (framework/core/files/temporaries.h), flushed to disk, then renamed. A crash leaves only files named .tmp-*, which
// are never read and are removed when a later process writes to the same directory. Failures of the file system (no
// permission, full disk) are UserErrors that name the file and the reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/output_path.h"

namespace longstride {

// "PATH: cannot ACTION: the system's reason", with advice if there is any.
UserError file_error(const std::string& path, const char* action, int error);
// "." for a name without a directory.
std::string directory_of(const std::string& path);

// A new file, or the new content of an old one, whose mode it keeps. output_path.h says what `path` may name; a stream
// receives the bytes as they are written. Without commit() the destructor discards the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, std::size_t count);
  // Where the content is until commit(), for libraries that write files themselves. They must not replace that file.
  // UserError if the path names a stream.
  const std::string& temporary_path() const;
  // Flushes to disk and renames to the final name. What is there is replaced, or a UserError.
  void commit(bool replace = true);

 private:
  void create_temporary();
  void open_late();
  void give_name(bool replace);

  std::string path_;  // as the user gave it
  OutputPath output_;
  std::string temporary_;  // empty: a stream
  bool committed_ = false;
  int descriptor_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view content);

// A new directory. The caller writes its files (by AtomicFile, so that they are on disk) into path(). A link to a
// directory is followed; UserError if the final path names anything but a directory.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::string final_path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::string& path() const { return temporary_; }  // where to write until commit
  // Flushes and renames to the final path. An older directory of that name is replaced, then removed.
  void commit();

 private:
  std::string final_;
  std::string temporary_;
  bool committed_ = false;
};

// A regular file, read at any offset; thread-safe.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  // UserError if the file has become shorter than offset + count.
  void read(std::uint64_t offset, void* out, std::size_t count) const;
  // UserError if the file has been written to or truncated since it was opened. A new file under its name does not
  // matter: this one stays open and keeps its content.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_ = 0;  // nanoseconds
};

std::string read_file(const std::string& path);

// The paths of what a folder holds, sorted; none if there is no such folder. UserError, or `error`, if it cannot be
// read.
std::vector<std::string> entries_of(const std::string& folder);
std::vector<std::string> entries_of(const std::string& folder, std::error_code& error);

}  // namespace longstride
