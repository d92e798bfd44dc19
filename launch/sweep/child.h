// This program once more, as another process.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace longstride {

struct ChildOptions {
  std::vector<std::string> words;  // all that follows the program's name
  std::string gpu;                 // the only one that it sees, as CUDA_VISIBLE_DEVICES has it; empty: all
  std::string log;                 // file that its messages are added to; empty: this process's standard error
};

// It gets SIGTERM when this process ends in any way, and so saves. UserError if it cannot be started.
pid_t start_child(const ChildOptions& options);

// How a child has ended: its exit code, or 128 and the signal's number; nothing while it runs.
std::optional<int> ended(pid_t child);

// The name of the i-th GPU that this process may use, for ChildOptions::gpu.
std::string visible_gpu(int i);

}  // namespace longstride
