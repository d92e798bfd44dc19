#include "launch/run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace longstride {
namespace {

// The value of "key : value" in a file of /proc; empty if there is none.
std::string value_in(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key))
      if (const std::size_t at = line.find(':'); at != std::string::npos) {
        const std::size_t begin = line.find_first_not_of(" \t", at + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
      }
  return "";
}

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&t, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

std::string describe_environment(Device device, int ranks) {
  utsname system = {};
  uname(&system);
  const nlohmann::ordered_json out = {
      {"longstride", LONGSTRIDE_VERSION},
      {"compiler", __VERSION__},
      {"built with CUDA", built_with_cuda()},
      {"device", device == Device::cuda ? device_info().name : "the CPU"},
      {"ranks", ranks},
      {"processor", value_in("/proc/cpuinfo", "model name")},
      {"cores", std::thread::hardware_concurrency()},
      {"memory", value_in("/proc/meminfo", "MemTotal")},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"host", system.nodename},
      {"began", now()},
  };
  return out.dump(2) + "\n";
}

}  // namespace longstride
