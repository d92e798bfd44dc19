// The files of a folder that somebody else may have made, such as a run that was downloaded. All of them are regular
// files below it, and what is read whole has a bounded size. No link below the folder is followed, because it may lead
// to any file of this machine; the folder itself may be a link. For folders that only this process changes meanwhile.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace longstride {

// Bytes of a file that is read whole.
inline constexpr std::uint64_t most_read = std::uint64_t{8} << 20;
// Bytes of a line.
inline constexpr std::uint64_t longest_line = std::uint64_t{64} << 10;

// FOLDER/NAME, where `name` may have several parts, and need not exist. UserError if one of them is a link, or neither
// a file nor a folder.
std::string inside(const std::string& folder, const std::string& name);
// The same for a folder that files will be written to: nothing in it may be a link either.
std::string folder_inside(const std::string& folder, const std::string& name);

// The content of a file, or its beginning. UserError if it has more bytes than `most`.
std::string read_at_most(const std::string& path, std::uint64_t most = most_read);
std::string read_beginning(const std::string& path, std::uint64_t most);

// Calls `each` with every line of a file, without its end. Reads it in pieces, so any size will do. A longer line than
// longest_line was not written by this program: it is left out with all that follows. Returns its number, or 0.
std::int64_t for_each_line(const std::string& path, const std::function<void(const std::string& line)>& each);

// True if next to nothing of a file is stored, and the rest is a hole, which reads as zeros. A gigabyte of it takes up
// no disk, but as long to read as any other.
bool is_hollow(const std::string& path);

}  // namespace longstride
