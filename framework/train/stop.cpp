#include "framework/train/stop.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace longstride {
namespace {

std::atomic<int> signal_seen = 0;
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
  action.sa_flags = SA_RESTART;  // reads and writes under way go on
  sigemptyset(&action.sa_mask);
  for (int number : {SIGTERM, SIGINT, SIGUSR1}) sigaction(number, &action, nullptr);
}

bool stop_requested() { return signal_seen.load() != 0; }
int stop_signal() { return signal_seen.load(); }
void clear_stop_request() { signal_seen.store(0); }

}  // namespace longstride
