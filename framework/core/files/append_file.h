// A file that grows while a run lasts, such as a log of measurements. What is appended is there as a whole or not at
// all, and a file that is no longer the one at its path is noticed: written on, it would vanish with the process.
#pragma once
#include <string>
#include <string_view>

namespace longstride {

class AppendFile {
 public:
  // Opens the file, made where there is none.
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
