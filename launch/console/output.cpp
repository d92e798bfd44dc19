#include "launch/console/output.h"

#include <fmt/format.h>

#include <algorithm>
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

void check_output_file(const std::string& path, bool replace, const std::vector<std::string>& inputs) {
  if (path == "-") throw user_error("-: names no file to write; give a name, or /dev/stdout for standard output");
  if (!resolve_output(path).stream) check_output(path, replace, inputs);
}

void check_json_output(bool json, const std::string& path) {
  if (json && is_same_place(path, "/dev/stdout") && !is_same_place(path, "/dev/null"))
    throw user_error("{}: is standard output, where --json prints an object and nothing else; name a file",
                     printable(path));
}

void make_output_folder(const std::string& path, bool replace, const std::vector<std::string>& inputs) {
  std::error_code error;
  for (const std::string& input : inputs)
    if (fs::equivalent(path, directory_of(input), error))
      throw user_error("{}: holds {}, which is read and might be replaced; choose another folder with --output",
                       printable(path), printable(fs::path(input).filename().string()));
  if (!replace && holds_something(path))
    throw user_error("{}: already holds files; choose another folder with --output, or write into it with --force",
                     printable(path));
  error.clear();
  fs::create_directories(path, error);
  if (error)
    throw user_error("{}: cannot be created ({}); choose another folder with --output", printable(path),
                     error.message());
}

bool is_same_place(const std::string& a, const std::string& b) {
  std::error_code absent;
  return fs::equivalent(a, b, absent);
}

void print_written(const std::string& path, const std::string& what) {
  if (!progress_is_shown()) return;
  std::error_code absent;
  const bool stream = !fs::is_directory(path, absent) && resolve_output(path).stream;
  std::fputs(fmt::format("{}: {}\n", printable(path), what).c_str(), stream ? stderr : stdout);
}

}  // namespace longstride
