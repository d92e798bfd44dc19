// Operations that not every file system has. exFAT and FAT have no hard links, network file systems cannot rename
// without replacing, and buckets that are mounted as folders may lack both and flush nothing.
#pragma once
#include <string>
#include <vector>

namespace longstride {

// Flushes an open file or folder to disk: 0, or the error. A file system that has no such function is let pass.
int flush_to_disk(int descriptor);

// Gives a file its name unless that exists: 0, or the error. Atomic where the file system can rename without replacing
// or has hard links; otherwise the name is looked for first.
int rename_to_new(const std::string& from, const std::string& to);

// Operations that the file system of a folder lacks, tried with files that are removed again.
struct DiskLimits {
  std::vector<std::string> lacks;  // missing, though runs manage without: "hard links", "flushing of files" ...
  std::string folders;  // why no folder with files can be renamed, so that no checkpoint can be saved; or empty
};
DiskLimits limits_of_disk(const std::string& folder);

}  // namespace longstride
