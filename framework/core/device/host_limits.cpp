#include "framework/core/device/host_limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <thread>

namespace longstride {
namespace {

using Number = std::optional<std::int64_t>;
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

// "max" and "unlimited", which stand for no limit, are no numbers either.
Number number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

// The words of a file.
std::vector<std::string> words_in(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> words;
  for (std::string word; words.size() < 2 && in >> word;) words.push_back(word);
  return words;
}

Number number_in(const std::string& path) {
  const std::vector<std::string> words = words_in(path);
  return words.empty() ? std::nullopt : number_of(words.front());
}

// The number after `key` at the start of a line.
Number number_after(const std::string& key, const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream words(line.substr(key.size()));
    std::string value;
    if (words >> value && (words.str().starts_with(' ') || words.str().starts_with('\t'))) return number_of(value);
  }
  return std::nullopt;
}

Number kilobytes_after(const std::string& key, const std::string& path) {
  const Number value = number_after(key, path);
  return value ? Number(std::min(*value, most / 1024) * 1024) : std::nullopt;
}

// The files in which a version of control groups keeps what a group may take, has taken, and could give back of that.
struct GroupFiles {
  const char* folder;
  std::vector<const char*> limits;
  const char* taken;
  std::vector<const char*> returnable;
};
const GroupFiles version_1 = {"/sys/fs/cgroup/memory",
                              {"memory.limit_in_bytes"},
                              "memory.usage_in_bytes",
                              {"total_inactive_file", "total_active_file"}};
const GroupFiles version_2 = {
    "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

std::optional<HostMemory> left_in_group(const std::string& root, const std::string& path, const GroupFiles& files) {
  const std::string folder = root + files.folder + path + "/";
  Number limit, taken = number_in(folder + files.taken);
  for (const char* name : files.limits)
    if (const Number found = number_in(folder + name)) limit = std::min(*found, limit.value_or(most));
  if (!limit || !taken) return std::nullopt;
  std::int64_t returnable = 0;  // files that the system keeps in memory
  for (const char* name : files.returnable)
    returnable += std::min(*taken, number_after(name, folder + "memory.stat").value_or(0));
  const std::int64_t used = std::max<std::int64_t>(0, *taken - returnable);
  return HostMemory{std::max<std::int64_t>(0, *limit - used), *limit,
                    "left in the memory group " + (path.empty() ? "/" : path)};
}

// Calls see(controllers between commas, path) for each group of this process and for those that it is in: a group is
// also bound by them. A container may see its own group as the root. A line of /proc/self/cgroup is
// "number:controllers:path"; version 2 has no controllers, and so ",,".
void each_group(const std::string& root, const std::function<void(const std::string&, const std::string&)>& see) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    std::string path = line.substr(second + 1);
    while (true) {
      if (path != "/") see(controllers, path);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

// A limit as /proc/self/limits has it, and what counts towards it.
void add_limit_of_process(const std::string& root, const char* limit, const char* taken, const char* origin,
                          std::vector<HostMemory>& all) {
  const Number most_bytes = number_after(limit, root + "/proc/self/limits");
  const Number bytes = kilobytes_after(taken, root + "/proc/self/status");
  if (most_bytes && bytes)
    all.push_back({std::max<std::int64_t>(0, *most_bytes - *bytes), *most_bytes, origin, true, true});
}

}  // namespace

std::string host_root() {
  const char* root = std::getenv("LONGSTRIDE_HOST_ROOT");
  return root != nullptr ? root : "";
}

std::vector<HostMemory> host_memory(const std::string& root) {
  std::vector<HostMemory> all;
  const std::string facts = root + "/proc/meminfo";
  if (const Number free = kilobytes_after("MemAvailable:", facts))
    all.push_back({*free, kilobytes_after("MemTotal:", facts).value_or(*free), "free on this machine"});
  each_group(root, [&](const std::string& controllers, const std::string& path) {
    const GroupFiles* files = controllers == ",,"                                 ? &version_2
                              : controllers.find(",memory,") != std::string::npos ? &version_1
                                                                                  : nullptr;
    if (files == nullptr) return;
    if (const auto left = left_in_group(root, path, *files)) all.push_back(*left);
  });
  add_limit_of_process(root, "Max address space", "VmSize:", "left of the limit on address space (ulimit -v)", all);
  add_limit_of_process(root, "Max data size", "VmData:", "left of the limit on data (ulimit -d)", all);
  return all;
}

std::optional<double> processor_quota(const std::string& root) {
  std::optional<double> least;
  each_group(root, [&](const std::string& controllers, const std::string& path) {
    Number quota, period;
    if (controllers == ",,") {
      const std::vector<std::string> words = words_in(root + "/sys/fs/cgroup" + path + "/cpu.max");
      if (words.size() == 2) quota = number_of(words[0]), period = number_of(words[1]);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      const std::string folder = root + "/sys/fs/cgroup/cpu" + path + "/cpu.cfs_";
      quota = number_in(folder + "quota_us"), period = number_in(folder + "period_us");
    }
    if (!quota || !period || *quota == 0 || *period == 0) return;
    const double processors = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(processors, least.value_or(processors));
  });
  return least;
}

int usable_processors(const std::string& root) {
  const auto here = static_cast<double>(std::thread::hardware_concurrency());
  return static_cast<int>(std::max(1.0, std::min(here, std::ceil(processor_quota(root).value_or(here)))));
}

}  // namespace longstride
