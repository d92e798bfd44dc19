#include "framework/core/device/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

namespace longstride {
namespace {

// "max", which stands for no limit, is no number either.
std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  return in >> word ? number_of(word) : std::nullopt;
}

// The number after `key` at the start of a line.
std::optional<std::int64_t> number_after(const std::string& key, const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key) return number_of(value);
  }
  return std::nullopt;
}

// The files in which a version of control groups keeps what a group may take, has taken, and could give back of that.
struct GroupFiles {
  const char *folder, *limit, *taken, *returnable;
};
constexpr GroupFiles version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

std::optional<std::int64_t> left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto limit = number_in(folder + "/" + files.limit), taken = number_in(folder + "/" + files.taken);
  if (!limit || !taken) return std::nullopt;
  const std::int64_t returnable = number_after(files.returnable, folder + "/memory.stat").value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *taken - returnable));
}

void lower(std::optional<std::int64_t>& least, std::optional<std::int64_t> value) {
  if (value) least = std::min(*value, least.value_or(std::numeric_limits<std::int64_t>::max()));
}

// A group is also bound by those that it is in. A container may see its own group as the root.
std::optional<std::int64_t> left_in_groups(const std::string& root, std::string path, const GroupFiles& files) {
  std::optional<std::int64_t> least;
  while (true) {
    lower(least, left_in_group(root + files.folder + path, files));
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// A line of /proc/self/cgroup is "number:controllers:path"; version 2 has no controllers.
std::optional<std::int64_t> left_for_this_process(const std::string& root) {
  std::optional<std::int64_t> least;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") lower(least, left_in_groups(root, path, version_2));
    if (controllers.find(",memory,") != std::string::npos) lower(least, left_in_groups(root, path, version_1));
  }
  return least;
}

}  // namespace

std::optional<std::int64_t> free_host_memory(const std::string& root) {
  std::optional<std::int64_t> least = left_for_this_process(root);
  if (const auto kilobytes = number_after("MemAvailable:", root + "/proc/meminfo"))
    lower(least, std::min(*kilobytes, std::numeric_limits<std::int64_t>::max() / 1024) * 1024);
  return least;
}

}  // namespace longstride
