// A file that grows during a run, such as a log of measurements. An append is complete or absent, and a file that is no
// longer the one at its path is noticed: more writes to it would vanish with the process.
#pragma once
#include <string>
#include <string_view>

namespace longstride {

class AppendFile {
 public:
  // Opens the file, or makes it if there is none.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // UserError when it cannot be written (a full disk), or was removed, renamed or replaced, or its directory may no
  // longer be written; the file then ends where it did.
  void append(std::string_view text);
  // To the disk.
  void flush();

 private:
  void check_in_place() const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace longstride
