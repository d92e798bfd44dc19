// Folders that a command makes for its output, and removes again if it ends before anything is in them.
#pragma once
#include <filesystem>
#include <system_error>
#include <vector>

namespace longstride {

class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(NewFolders&&) = default;
  NewFolders& operator=(NewFolders&&) = delete;
  ~NewFolders();

  // Makes the folder and those above it that do not exist.
  std::error_code make(const std::filesystem::path& folder);
  // Lets the folders stay, even empty ones.
  void keep() { made_.clear(); }

 private:
  std::vector<std::filesystem::path> made_;  // the innermost first
};

}  // namespace longstride
