// Runs the `longstride` command as a user does and captures its output.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace longstride::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + the signal if one ended it
  std::string out, err;
};

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// In `directory`, so that relative paths and what is written stay there. SIGALRM ends a command that takes longer than
// `seconds`: the alarm outlives exec. Several ranks are started by mpirun.
inline CommandResult run_command(const std::vector<std::string>& arguments, const std::string& directory,
                                 unsigned seconds = 120, int ranks = 1) {
  const TemporaryDirectory outputs;
  const std::string out = outputs / "out", err = outputs / "err";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto to_file = [](const std::string& path, int stream) {
      const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
      return file >= 0 && ::dup2(file, stream) == stream;
    };
    const bool ready = ::chdir(directory.c_str()) == 0 && to_file(out, STDOUT_FILENO) && to_file(err, STDERR_FILENO) &&
                       ::setenv("OMP_NUM_THREADS", "1", 1) == 0 &&
                       ::setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0;  // the same everywhere: on the CPU
    ::alarm(seconds);
    std::vector<std::string> all = {LONGSTRIDE_COMMAND};
    if (ranks > 1) {
      for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                               "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"})
        ::setenv(name, "1", 1);
      all = {"mpirun", "--bind-to", "none", "-n", std::to_string(ranks), LONGSTRIDE_COMMAND};
    }
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (ready) ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CommandResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = text_of(out);
  result.err = text_of(err);
  return result;
}

// Standard input of the commands that are run during its lifetime.
class InputFrom {
 public:
  explicit InputFrom(const std::string& path) : before_(::dup(STDIN_FILENO)) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  ~InputFrom() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  InputFrom(const InputFrom&) = delete;
  InputFrom& operator=(const InputFrom&) = delete;

 private:
  int before_;
};

}  // namespace longstride::testing
