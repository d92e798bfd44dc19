// "eval 120/390" on a terminal, rewritten in place; nothing in a log. The object's end ends the line, so a command that
// prints more does so after its scope.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "framework/train/metrics/progress.h"

namespace longstride {

class CounterLine {
 public:
  CounterLine(std::string what, bool quiet)
      : what_(std::move(what)), shown_(!quiet && progress_is_shown() && isatty(STDERR_FILENO) != 0) {}
  ~CounterLine() {
    if (open_) std::fputc('\n', stderr);
  }
  CounterLine(const CounterLine&) = delete;
  CounterLine& operator=(const CounterLine&) = delete;

  void update(std::int64_t done, std::int64_t all) { update(what_, done, all); }
  // For work in several parts, each with a count of its own. The escape sequence erases the rest of a longer line.
  void update(const std::string& what, std::int64_t done, std::int64_t all) {
    if (!shown_) return;
    open_ = true;
    std::fprintf(stderr, "\r%s %lld/%lld\x1b[K", what.c_str(), static_cast<long long>(done),
                 static_cast<long long>(all));
    std::fflush(stderr);
  }

 private:
  std::string what_;
  bool shown_;
  bool open_ = false;
};

}  // namespace longstride
