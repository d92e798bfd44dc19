#include "launch/console/output.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "datasets/prepare/dataset_writer.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Temporary files of a process that is writing there, or was killed, do not count.
bool holds_something(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  return !error && std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return !entry.path().filename().string().starts_with(".tmp-");
  });
}

}  // namespace

void check_output_file(const std::string& path, bool replace, const std::vector<std::string>& inputs,
                       const char* option) {
  if (path == "-") throw user_error("-: names no file to write; give a name, or /dev/stdout for standard output");
  const OutputPath output = resolve_output(path);
  if (output.stream) return;
  check_output(path, replace, inputs, option);
  std::error_code absent;
  if (const std::string folder = directory_of(output.path); !fs::is_directory(folder, absent))
    throw user_error("{}: there is no folder {}; make it, or choose another {}", printable(path), printable(folder),
                     option);
}

void check_picture_file(const std::string& path, bool replace, const std::vector<std::string>& inputs,
                        const char* option) {
  check_output_file(path, replace, inputs, option);
  check_ending(path, ".png", "pictures are written as PNG", option);
}

void check_ending(const std::string& path, const char* expected, const char* what, const char* option) {
  std::string ending = fs::path(path).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!ending.empty() && ending != expected && !resolve_output(path).stream)
    throw user_error("{}: {}; give {} a name that ends in {}", printable(path), what, option, expected);
}

void check_json_output(bool json, const std::string& path) {
  if (json && is_same_place(path, "/dev/stdout") && !is_same_place(path, "/dev/null"))
    throw user_error("{}: is standard output, where --json prints an object and nothing else; name a file",
                     printable(path));
}

NewFolders make_output_folder(const std::string& path, bool replace, const std::vector<std::string>& inputs) {
  if (path == "-") throw user_error("-: names no folder to write to; give --output a name");
  std::error_code error;
  for (const std::string& input : inputs)
    if (fs::equivalent(path, directory_of(input), error))
      throw user_error("{}: holds {}, which is read and might be replaced; choose another folder with --output",
                       printable(path), printable(fs::path(input).filename().string()));
  if (!replace && holds_something(path))
    throw user_error("{}: already holds files; choose another folder with --output, or write into it with --force",
                     printable(path));
  NewFolders folders;
  if (const std::error_code refused = folders.make(path))
    throw user_error("{}: cannot be created ({}); choose another folder with --output", printable(path),
                     refused.message());
  return folders;
}

void remove_older_files(const std::string& folder, const std::vector<std::string>& beginnings,
                        const std::set<std::string>& kept) {
  std::error_code error;
  std::vector<fs::path> older;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code gone;
    const bool own =
        std::any_of(begin(beginnings), end(beginnings), [&](const auto& b) { return name.starts_with(b); });
    if (own && !kept.contains(name) && entry->is_regular_file(gone)) older.push_back(entry->path());
  }
  for (const fs::path& path : older) fs::remove(path, error);
}

// Pipes and terminals as well, about which fs::equivalent refuses to say anything.
bool is_same_place(const std::string& a, const std::string& b) {
  struct stat of_a = {}, of_b = {};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

void print_written(const std::string& path, const std::string& what) {
  if (!progress_is_shown()) return;
  std::error_code absent;
  const bool stream = !fs::is_directory(path, absent) && resolve_output(path).stream;
  std::fputs(fmt::format("{}: {}\n", printable(path), what).c_str(), stream ? stderr : stdout);
}

}  // namespace longstride
