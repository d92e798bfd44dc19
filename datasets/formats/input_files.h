// Finds the files that a user names.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"

namespace longstride {

// The regular files under `folder`, at any depth, sorted by path, without hidden ones (.x, and the ._x that macOS
// leaves). A folder that is also reached by links counts once, under its own name. UserError if it cannot be read, or
// holds a link that leads nowhere, a pipe, a socket or a device: nothing is dropped silently.
std::vector<std::string> files_under(const std::string& folder);

bool is_folder(const std::string& path);
// The last part of the path.
std::string file_name(const std::string& path);
// "png" of "a/B.PNG"; empty without a dot.
std::string lower_extension(const std::string& path);
std::int64_t bytes_of_files(const std::vector<std::string>& paths);

// The files of a folder or an archive that are not used.
class LeftOut {
 public:
  void add(const std::string& name) { names_.push_back(name); }
  // "6 other files (1 .json, 5 .txt)"; empty if there are none.
  std::string listed() const;
  bool holds_archives() const;  // by their names
  // Says how many of each kind there are. UserError if they outnumber the `taken` files of `kind` ("PNG files"), unless
  // `allowed`. A file next to one that is taken, whose name differs from it only by the extension, is expected to be
  // there (the notes of a recording, the caption of a picture) and does not count.
  void report(const std::string& where, const std::vector<std::string>& taken, const char* kind, bool allowed,
              const PrepareNote& note) const;

 private:
  std::string kinds() const;

  std::vector<std::string> names_;
};

// Where paths lead, without links. Looks at every folder once, since a data set may have millions of files.
class RealPaths {
 public:
  // Sets `error` if the file cannot be found.
  std::string of(const std::string& path, std::error_code& error);

 private:
  std::map<std::string, std::string> folders_;
};

// The error that a path and an `earlier` one lead to the same file or folder, with a remedy.
UserError given_twice(const std::string& path, const std::string& earlier);

// UserError if two paths lead to the same file or folder: its data would be in two splits, or twice in one.
void check_distinct(const std::vector<std::string>& paths);

}  // namespace longstride
