#include "datasets/formats/input_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_set>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {

namespace fs = std::filesystem;

namespace {

// Visits real folders before links, so that a folder reached both ways is listed under its own name.
class FolderListing {
 public:
  std::vector<std::string> files(const std::string& folder) {
    visit(folder);
    while (!links_.empty()) {
      const std::string next = *links_.begin();
      links_.erase(links_.begin());
      visit(next);
    }
    std::sort(files_.begin(), files_.end());
    return std::move(files_);
  }

 private:
  void visit(const std::string& folder) {
    std::error_code error;
    const std::string real = fs::canonical(folder, error).string();
    if (!error && !seen_.insert(real).second) return;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (entry->path().filename().string().starts_with('.')) continue;
      const std::string path = entry->path().string();
      const fs::file_type type = type_of(path);
      if (type == fs::file_type::regular)
        files_.push_back(path);
      else if (type == fs::file_type::directory && is_link(path))
        links_.insert(path);
      else if (type == fs::file_type::directory)
        visit(path);
      else
        throw user_error("{}: is a pipe, a socket or a device, which holds no data; remove it from the folder", path);
    }
    if (error) throw user_error("{}: the folder cannot be read: {}", folder, error.message());
  }

  static bool is_link(const std::string& path) {
    std::error_code absent;
    return fs::is_symlink(path, absent);
  }

  // The type of the file that a link leads to. A link without a target might be data, so it is not left out.
  static fs::file_type type_of(const std::string& path) {
    std::error_code error;
    const fs::file_type type = fs::status(path, error).type();
    if (type != fs::file_type::none && type != fs::file_type::not_found) return type;
    std::error_code unknown;
    if (!is_link(path))
      throw user_error("{}: cannot be read: {}; make it readable or remove it from the folder", path, error.message());
    throw user_error("{}: is a link to {}, which cannot be read: {}; fetch what it leads to or remove the link", path,
                     fs::read_symlink(path, unknown).string(), error.message());
  }

  std::vector<std::string> files_;
  std::set<std::string> seen_, links_;
};

std::string without_extension(const std::string& path) { return fs::path(path).replace_extension().string(); }

}  // namespace

std::vector<std::string> files_under(const std::string& folder) { return FolderListing().files(folder); }

void LeftOut::report(const std::string& where, const std::vector<std::string>& taken, const char* kind, bool allowed,
                     const PrepareNote& note) const {
  if (names_.empty()) return;
  std::unordered_set<std::string> stems;
  for (const std::string& name : taken) stems.insert(without_extension(name));
  std::size_t strangers = 0;
  for (const std::string& name : names_) strangers += stems.contains(without_extension(name)) ? 0 : 1;
  if (strangers > taken.size() && !allowed)
    throw user_error("{}: holds {} {} and {}; convert or remove them, or leave them out with --skip-others", where,
                     thousands(taken.size()), kind, listed());
  if (note)
    note(fmt::format("{}: left out {} other than {}: {}", where, counted(std::ssize(names_), "file"), kind, kinds()));
}

std::string LeftOut::listed() const {
  return names_.empty() ? "" : fmt::format("{} ({})", counted(std::ssize(names_), "other file"), kinds());
}

bool LeftOut::holds_archives() const {
  static const std::set<std::string> archives = {"tar", "tgz", "txz", "tbz2", "zip", "gz", "xz", "bz2", "zst"};
  return std::any_of(names_.begin(), names_.end(),
                     [](const std::string& name) { return archives.contains(lower_extension(name)); });
}

std::string LeftOut::kinds() const {
  std::map<std::string, std::int64_t> counts;  // by extension
  for (const std::string& name : names_) {
    const std::string extension = lower_extension(name);
    ++counts[extension.empty() ? "without an extension" : "." + extension];
  }
  std::string out;
  for (const auto& [extension, count] : counts)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", thousands(count), printable(extension));
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

std::string RealPaths::of(const std::string& path, std::error_code& error) {
  const fs::path name = fs::path(path).filename();
  error.clear();
  if (name.empty() || name == "." || name == ".." || fs::symlink_status(path, error).type() != fs::file_type::regular)
    return fs::canonical(path, error).string();
  const std::string folder = directory_of(path);
  auto real = folders_.find(folder);
  if (real == folders_.end()) real = folders_.emplace(folder, fs::canonical(folder, error).string()).first;
  return (fs::path(real->second) / name).string();
}

UserError given_twice(const std::string& path, const std::string& earlier) {
  std::error_code absent;
  const bool link = fs::is_symlink(path, absent) || fs::is_symlink(earlier, absent);
  return user_error("{}: is given twice{}; {}", path, path == earlier ? "" : fmt::format(" (also as {})", earlier),
                    link && path != earlier ? "remove the link" : "name every input once");
}

void check_distinct(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> seen;
  RealPaths real_paths;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::string real = real_paths.of(path, error);
    if (error && path == "-") throw user_error("-: only `prepare bytes` reads standard input; name a file or a folder");
    if (error) throw user_error("{}: cannot be found: {}", path, error.message());
    const auto [at, fresh] = seen.emplace(real, path);
    if (!fresh) throw given_twice(path, at->second);
  }
}

}  // namespace longstride
