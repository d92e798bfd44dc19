// A file of bytes, read by a trained model window after window: what `encode` and `predict` share.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/train/evaluate/row_reader.h"
#include "launch/run/run_directory.h"

namespace longstride {

// A file's bytes, or the ids of its tokens (RunTokens). UserError if it cannot be read or is empty, or if the run was
// trained on something else than text.
std::vector<std::uint8_t> bytes_of_input(const LoadedRun& run, const std::string& path);

// The option --groups of a command that reads a file, and where these groups end: sentences unless it says otherwise.
// None if neither the objective nor the model reads them; then UserError if the option is given.
struct GroupsOption {
  std::string which;
};
void add_groups_option(CLI::App& command, GroupsOption& option);
std::vector<std::int64_t> groups_of_input(const LoadedRun& run, const GroupsOption& option,
                                          const std::vector<std::uint8_t>& bytes);

// One window of the file, which begins at `first`.
struct FileWindow {
  std::int64_t number = 0, first = 0, count = 0;
};
// Calls read(reader, window) for every window of `bytes` in order. What it returns uses the results; it is called in
// order too, while the next window is read, by another thread. On a GPU `run.model` is left bound to memory that has
// been freed.
using ReadWindow = std::function<std::function<void()>(RowReader& reader, const FileWindow& window)>;
void read_windows(const LoadedRun& run, std::int64_t bytes, bool asks, Device device, const ReadWindow& read);

}  // namespace longstride
