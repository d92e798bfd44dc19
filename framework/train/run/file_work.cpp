#include "framework/train/run/file_work.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>
#include <vector>

namespace longstride {

struct FileWorkEntry {
  std::string path;
  std::chrono::steady_clock::time_point begin;
  int said = 0;  // times
};

namespace {

// Shorter than any hang_seconds that lets a step end.
constexpr std::chrono::milliseconds look_every{50};

std::mutex entries_mutex;
std::list<FileWorkEntry> entries;

// True if there is any. `due` gets those that are to be said, and for how long they have lasted.
bool look(double say_every, std::vector<std::pair<std::string, double>>& due) {
  const std::lock_guard lock(entries_mutex);
  for (FileWorkEntry& entry : entries) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - entry.begin).count();
    if (seconds < say_every * (entry.said + 1)) continue;
    entry.said = static_cast<int>(seconds / say_every);
    due.emplace_back(entry.path, seconds);
  }
  return !entries.empty();
}

}  // namespace

FileWork::FileWork(std::string path) {
  const std::lock_guard lock(entries_mutex);
  entry_ = entries.insert(entries.end(), {std::move(path), std::chrono::steady_clock::now()});
}

FileWork::~FileWork() {
  const std::lock_guard lock(entries_mutex);
  entries.erase(entry_);
}

// The main thread handles signals.
FileWorkWatch::FileWorkWatch(Communicator& comm, double say_every) : comm_(comm) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, say_every] { watch(say_every); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FileWorkWatch::~FileWorkWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FileWorkWatch::watch(double say_every) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, look_every, [&] { return stopping_; })) {
    std::vector<std::pair<std::string, double>> due;
    if (look(say_every, due)) comm_.still_working();
    for (const auto& [path, seconds] : due)
      spdlog::warn("{}{}: the disk has not answered for {:.0f} s; still waiting",
                   comm_.size() > 1 ? fmt::format("rank {} ({}): ", comm_.rank(), comm_.host()) : "", path, seconds);
  }
}

}  // namespace longstride
