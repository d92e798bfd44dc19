#include "datasets/input_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "framework/core/errors.h"
#include "framework/core/files.h"

namespace longstride {

namespace fs = std::filesystem;

std::vector<std::string> files_under(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error);
  while (!error && entry != fs::recursive_directory_iterator()) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    std::error_code unreadable;
    if (entry->is_directory(unreadable)) {
      if (hidden) entry.disable_recursion_pending();
    } else if (!hidden && entry->is_regular_file(unreadable)) {
      out.push_back(entry->path().string());
    }
    entry.increment(error);
  }
  if (error) throw user_error("{}: the folder cannot be read: {}", folder, error.message());
  std::sort(out.begin(), out.end());
  return out;
}

bool is_folder(const std::string& path) {
  std::error_code absent;
  return fs::is_directory(path, absent);
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

std::string lower_extension(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  if (!extension.empty()) extension.erase(0, 1);
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension;
}

std::int64_t bytes_of_files(const std::vector<std::string>& paths) {
  std::int64_t sum = 0;
  for (const std::string& path : paths) sum += static_cast<std::int64_t>(InputFile(path).size());
  return sum;
}

void check_distinct(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> seen;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::string real = fs::canonical(path, error).string();
    if (error) throw user_error("{}: cannot be found: {}", path, error.message());
    const auto [at, fresh] = seen.emplace(real, path);
    if (!fresh) throw user_error("{}: is given twice (also as {}); name every input once", path, at->second);
  }
}

}  // namespace longstride
