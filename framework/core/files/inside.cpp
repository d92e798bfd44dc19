#include "framework/core/files/inside.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"

namespace longstride {

namespace fs = std::filesystem;

std::string inside(const std::string& folder, const std::string& name) {
  std::string at = folder;
  for (const fs::path& part : fs::path(name)) {
    at += '/';
    at += part.string();
    struct stat status = {};
    if (::lstat(at.c_str(), &status) != 0) break;  // absent, or an error that opening it will report
    if (S_ISLNK(status.st_mode))
      throw user_error(
          "{}: is a link, and links within a run are not followed, because they may lead to any file of this machine; "
          "move what it leads to there, or link the whole run instead",
          printable(at));
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
      throw user_error("{}: is neither a file nor a folder; remove it", printable(at));
  }
  return folder + "/" + name;
}

std::string folder_inside(const std::string& folder, const std::string& name) {
  std::string path = inside(folder, name);
  for (const std::string& entry : entries_of(path)) inside(folder, name + "/" + fs::path(entry).filename().string());
  return path;
}

std::string read_beginning(const std::string& path, std::uint64_t most) {
  const InputFile file(path);
  std::string content(std::min(file.size(), most), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

std::string read_at_most(const std::string& path, std::uint64_t most) {
  const std::uint64_t size = InputFile(path).size();
  if (size > most)
    throw user_error("{}: has {} bytes, but at most {} are read; this is no such file as Longstride writes",
                     printable(path), size, most);
  return read_beginning(path, most);
}

std::int64_t for_each_line(const std::string& path, const std::function<void(const std::string& line)>& each) {
  const InputFile file(path);
  std::string piece(longest_line, '\0'), line;
  std::int64_t number = 1;
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(longest_line, file.size() - at));
    file.read(at, piece.data(), piece.size());
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = std::min(piece.find('\n', begin), piece.size());
      line.append(piece, begin, end - begin);
      if (line.size() > longest_line) return number;
      begin = end + 1;
      if (end == piece.size()) break;
      each(line);
      line.clear();
      ++number;
    }
  }
  if (!line.empty()) each(line);
  return 0;
}

bool is_hollow(const std::string& path) {
  constexpr off_t large = off_t{1} << 30, per_stored_byte = 1000;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;  // reading it will report the error
  const off_t size = ::lseek(file, 0, SEEK_END);
  off_t stored = 0;
  for (off_t at = 0; size > large && at < size && stored <= size / per_stored_byte;) {
    const off_t data = ::lseek(file, at, SEEK_DATA);
    if (data < 0 && errno != ENXIO) stored = size;  // the file system does not say
    if (data < 0) break;                            // only a hole is left
    at = ::lseek(file, data, SEEK_HOLE);
    if (at < 0) at = size;
    stored += at - data;
  }
  ::close(file);
  return size > large && stored <= size / per_stored_byte;
}

}  // namespace longstride
