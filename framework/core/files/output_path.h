// What an output path names. Links are followed: the file that they lead to is made or replaced, and the links stay. A
// pipe, a terminal or another character device is a stream, written through and never replaced; so is /dev/stdout,
// whatever it leads to. A directory, a socket and a disk are refused.
#pragma once
#include <string>

namespace longstride {

struct OutputPath {
  std::string path;  // what the links lead to; it need not exist
  bool stream = false;
};

// UserError when `path` names what no file can be written to.
OutputPath resolve_output(const std::string& path);
// A descriptor to write to a stream with, the caller's to close. Waits for a pipe's reader, as a shell does.
int open_stream(const OutputPath& output);
// What the links at `path` lead to. UserError when they lead in a circle.
std::string follow_links(const std::string& path);

}  // namespace longstride
