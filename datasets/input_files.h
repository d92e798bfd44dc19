// Finding the files that a user names, and following a sequence of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

// The regular files under `folder`, at any depth, sorted by path; hidden ones (.x, and the ._x that macOS leaves) are
// left out. UserError when it cannot be read.
std::vector<std::string> files_under(const std::string& folder);

bool is_folder(const std::string& path);
// The last part of the path.
std::string file_name(const std::string& path);
// "png" of "a/B.PNG"; empty without a point.
std::string lower_extension(const std::string& path);
std::int64_t bytes_of_files(const std::vector<std::string>& paths);

// UserError when one path leads to the same file or folder as another: its data would be in two splits, or twice in
// one.
void check_distinct(const std::vector<std::string>& paths);

}  // namespace longstride
