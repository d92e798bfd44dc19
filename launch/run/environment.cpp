#include "launch/run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "launch/run/build_info.h"

namespace longstride {
namespace {

using Json = nlohmann::ordered_json;

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

// The arguments as a shell reads them, without mpirun's.
std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string command;
  for (std::string argument; std::getline(in, argument, '\0');) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
    if (!command.empty()) command += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
      command += argument;
      continue;
    }
    command += '\'';
    for (const char c : argument) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += '\'';
  }
  return command;
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

std::string describe_environment(Device device, int ranks, const std::string& run_id, const std::string& from) {
  utsname system = {};
  uname(&system);
  const BuildInfo build = build_info();
  std::error_code ignored;
  Json out = {
      {"longstride", LONGSTRIDE_VERSION},
      {"commit", build.commit},
      {"command", command_line()},
      {"directory", std::filesystem::current_path(ignored).string()},
      {"compiler", __VERSION__},
      {"build type", build.type},
      {"sanitizers", *build.sanitizers != 0 ? build.sanitizers : "none"},
      {"tuned for the building machine", build.native},
      {"built with CUDA", built_with_cuda()},
      {"device", device == Device::cuda ? device_info().name : "the CPU"},
      {"ranks", ranks},
      {"processor", value_in("/proc/cpuinfo", "model name")},
      {"cores", std::thread::hardware_concurrency()},
      {"memory", value_in("/proc/meminfo", "MemTotal")},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"host", system.nodename},
      {"began", now()},
      {"run_id", run_id},
  };
  if (!from.empty()) out["from"] = from;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";  // a command or a path need not be UTF-8
}

}  // namespace longstride
