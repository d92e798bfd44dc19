// The target of an output path. Links are followed: the file that they lead to is created or replaced, and the links
// stay. A pipe, a terminal or another character device is a stream, which is written to and never replaced; so is
// /dev/stdout, wherever it leads. A directory, a socket and a disk are refused.
#pragma once
#include <string>

namespace longstride {

struct OutputPath {
  std::string path;  // target of the links; it need not exist
  bool stream = false;
};

// UserError if no file can be written to `path`.
OutputPath resolve_output(const std::string& path);
// A descriptor for writing to a stream, which the caller closes. Waits for a pipe's reader, as a shell does.
int open_stream(const OutputPath& output);
// The target of the links at `path`. UserError when they lead in a circle.
std::string follow_links(const std::string& path);

}  // namespace longstride
