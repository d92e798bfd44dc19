// Runs `longstride` as a user does.
#pragma once
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace longstride {

struct Outcome {
  int code = -1;
  std::string text;  // standard output and standard error
};

inline Outcome shell(const std::string& command) {
  Outcome outcome;
  const std::string line = fmt::format("bash -c \"{}\" 2>&1 < /dev/null", command);
  FILE* pipe = popen(line.c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.text.append(buffer.data(), got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

inline Outcome call(const std::string& arguments) {
  return shell(fmt::format("'{}' {}", LONGSTRIDE_COMMAND, arguments));
}

}  // namespace longstride
