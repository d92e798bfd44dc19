#include "launch/console/new_folders.h"

namespace longstride {

namespace fs = std::filesystem;

NewFolders::~NewFolders() {
  std::error_code not_empty;
  for (const fs::path& folder : made_) fs::remove(folder, not_empty);
}

std::error_code NewFolders::make(const fs::path& folder) {
  std::error_code error;
  const auto absent = [&](const fs::path& at) {
    return fs::symlink_status(at, error).type() == fs::file_type::not_found;  // not so a link that leads nowhere
  };
  std::vector<fs::path> missing;
  for (fs::path at = folder; !at.empty() && absent(at); at = at.parent_path()) missing.push_back(at);
  made_.insert(made_.begin(), missing.begin(), missing.end());
  error.clear();
  fs::create_directories(folder, error);
  return error;
}

}  // namespace longstride
