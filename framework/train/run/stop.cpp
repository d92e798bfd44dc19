#include "framework/train/run/stop.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <optional>

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> signal_seen = 0;
std::atomic<bool> interrupted = false;
StopNotices notices;                        // written before the handler is installed
std::optional<Clock::time_point> deadline;  // only the training thread uses it
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch only lock-free atomics");

// Safe in a signal handler. On a terminal a line of progress may be there, which the notice replaces.
void say(const char* notice) {
  if (notice == nullptr) return;
  const int error = errno;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  static_cast<void>(terminal && ::write(STDERR_FILENO, "\r\x1b[K", 4) < 0);
  static_cast<void>(::write(STDERR_FILENO, notice, std::strlen(notice)) < 0);
  errno = error;
}

extern "C" void note_stop_signal(int number) {
  if (number == SIGINT && interrupted.exchange(true)) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
    return;
  }
  const bool first = signal_seen.exchange(number) == 0;
  if (number == SIGINT) say(notices.interrupted);
  if (number != SIGINT && first) say(notices.asked);
}

}  // namespace

void catch_stop_signals(StopNotices said) {
  notices = said;
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  action.sa_flags = SA_RESTART;  // interrupted reads and writes continue
  sigemptyset(&action.sa_mask);
  for (int number : {SIGTERM, SIGINT, SIGUSR1}) sigaction(number, &action, nullptr);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stop_requested() { return signal_seen.load() != 0 || (deadline && Clock::now() >= *deadline); }
void request_stop_after(double seconds) {
  deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
int stop_signal() { return signal_seen.load(); }
void clear_stop_request() {
  signal_seen.store(0);
  interrupted.store(false);
  deadline.reset();
}

}  // namespace longstride
