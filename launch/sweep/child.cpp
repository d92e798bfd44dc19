#include "launch/sweep/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// Between fork and exec, so without memory of its own. Its result is this process's, not the child's to print.
[[noreturn]] void become(char* const* words, const char* log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(143);  // it has ended meanwhile
  const int out = log[0] == '\0' ? STDERR_FILENO : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(127);
  execv("/proc/self/exe", words);
  _exit(127);
}

}  // namespace

pid_t start_child(const ChildOptions& options) {
  std::vector<std::string> words = {"longstride"};
  words.insert(words.end(), options.words.begin(), options.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  constexpr const char* visible = "CUDA_VISIBLE_DEVICES";
  const char* before = std::getenv(visible);
  const std::optional<std::string> kept = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
  if (!options.gpu.empty()) setenv(visible, options.gpu.c_str(), 1);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(argv.data(), options.log.c_str(), parent);
  const int error = errno;
  if (!options.gpu.empty()) kept ? setenv(visible, kept->c_str(), 1) : unsetenv(visible);
  if (child < 0) throw user_error("a training cannot be started: {}", std::strerror(error));
  return child;
}

std::optional<int> ended(pid_t child) {
  int status = 0;
  const pid_t found = waitpid(child, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return std::nullopt;
  if (found < 0) return 127;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return WIFSIGNALED(status) ? std::optional(128 + WTERMSIG(status)) : std::nullopt;
}

std::string visible_gpu(int i) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream in(visible != nullptr ? visible : "");
  std::string name;
  for (int at = 0; std::getline(in, name, ','); ++at)
    if (at == i) return name;
  return std::to_string(i);
}

}  // namespace longstride
