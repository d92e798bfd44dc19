#include "framework/train/run/stop.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> signal_seen = 0;
std::optional<Clock::time_point> deadline;  // only the training thread uses it
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch only lock-free atomics");

extern "C" void note_stop_signal(int number) {
  if (number == SIGINT && signal_seen.load() == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  signal_seen.store(number);
}

}  // namespace

void catch_stop_signals() {
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
  deadline.reset();
}

}  // namespace longstride
