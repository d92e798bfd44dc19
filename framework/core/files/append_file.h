// A file that grows during a run, such as a log of measurements. An append is complete or absent. The writer notices
// when another file has taken its path, because further writes would vanish with the process.
#pragma once
#include <string>
#include <string_view>

namespace longstride {

class AppendFile {
 public:
  // Opens the file, or creates it if it does not exist. UserError if it is a link.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // UserError when the file cannot be written (a full disk), or was removed, renamed or replaced, or its directory is
  // no longer writable; the file's content is then unchanged.
  void append(std::string_view text);
  // Flushes to disk.
  void flush();

 private:
  void check_in_place() const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace longstride
