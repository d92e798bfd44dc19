#include "framework/core/files/temporaries.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = ".tmp-";

// Identifies the host and pid namespace in which a process number is valid: containers number their own processes.
std::string host_of_processes() {
  constexpr std::string_view of_the_host = "pid:[4026531836]";  // the kernel's constant
  char name[256] = "localhost";
  ::gethostname(name, sizeof(name) - 1);
  std::string host = std::string(name).substr(0, 64);
  std::replace(host.begin(), host.end(), '/', '_');
  std::error_code error;
  const std::string space = fs::read_symlink("/proc/self/ns/pid", error).string();
  if (error || space == of_the_host) return host;
  std::string number;
  std::copy_if(space.begin(), space.end(), std::back_inserter(number), [](char c) { return c >= '0' && c <= '9'; });
  return host + "." + number;
}

const std::string& own_host() {
  static const std::string host = host_of_processes();
  return host;
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// True if a process on this host has ended. A zombie has, although it keeps its number until its parent asks for it.
bool has_ended(pid_t process) {
  if (::kill(process, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t state = line.rfind(") ");  // the program's name, which may have any characters, ends here
  return state != std::string::npos && state + 2 < line.size() && (line[state + 2] == 'Z' || line[state + 2] == 'X');
}

bool is_abandoned(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t at = name.rfind('@'), dash = name.rfind('-', at);
  if (!name.starts_with(prefix) || at == std::string::npos || dash == std::string::npos || dash > at) return false;
  pid_t process = 0;
  const char *begin = name.data() + dash + 1, *end = name.data() + at;
  if (std::from_chars(begin, end, process).ptr != end || process <= 0) return false;
  if (name.substr(at + 1) == own_host()) return has_ended(process);
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::hours(24);
}

}  // namespace

std::string temporary_path(const std::string& path) {
  constexpr std::size_t most_of_name = 100;  // the whole name must stay below 255 bytes
  const fs::path full = path, parent = full.parent_path();
  const std::string name = full.filename().string().substr(0, most_of_name);
  return ((parent.empty() ? "." : parent) / fmt::format("{}{}-{}@{}", prefix, name, ::getpid(), own_host())).string();
}

void remove_abandoned_temporaries(const std::string& directory) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (!seen.insert(directory).second) return;
  std::error_code absent;
  for (fs::directory_iterator entry(directory, absent), end; !absent && entry != end; entry.increment(absent))
    if (is_abandoned(entry->path())) remove_quietly(entry->path());
}

void remove_temporaries(const std::string& directory) {
  std::error_code absent;
  for (fs::directory_iterator entry(directory, absent), end; !absent && entry != end; entry.increment(absent))
    if (entry->path().filename().string().starts_with(prefix)) remove_quietly(entry->path());
}

}  // namespace longstride
