#include "framework/train/run/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "framework/core/errors.h"
#include "framework/core/files/disk.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using std::chrono::duration;

constexpr const char* first_line = "longstride lock";
constexpr std::size_t longest_lock = 4096;
constexpr int most_missed_beats = 3;  // a failed read or write may be a hiccup of the file server

// The process that a lock names. `machine` tells pid namespaces and reboots apart: within one machine, a process number
// and the time that the process began tell whether it is alive.
struct Owner {
  std::string host, machine, token;
  long process = 0;
  std::string began;  // clock ticks since boot, as in /proc
  std::string text;   // the whole lock, counter included
};

std::string first_line_of(const std::string& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

// Empty when there is no such process, or when it is a zombie.
std::string beginning_of(long process) {
  const std::string stat = first_line_of(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  for (int i = 4; i <= 22; ++i) fields >> field;  // 22: when it began
  return state == "Z" || state == "X" ? "" : field;
}

Owner this_process() {
  Owner own;
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  own.host = name;
  std::error_code absent;
  own.machine =
      first_line_of("/proc/sys/kernel/random/boot_id") + "/" + fs::read_symlink("/proc/self/ns/pid", absent).string();
  own.process = ::getpid();
  own.began = beginning_of(own.process);
  std::random_device random;
  own.token = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  return own;
}

// Has a constant length for a process, because each beat overwrites the previous one.
std::string lock_text(const Owner& own, std::uint64_t beat) {
  return fmt::format("{}\nhost {}\nprocess {}\nbegan {}\nmachine {}\ntoken {}\nbeat {:020}\n", first_line, own.host,
                     own.process, own.began, own.machine, own.token, beat);
}

struct FileDescriptor {
  explicit FileDescriptor(int opened) : number(opened) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (number >= 0) ::close(number);
  }
  const int number;
};

// The owner that an open file names, or nothing if it cannot be read.
std::optional<Owner> read_lock(int descriptor) {
  std::string text(longest_lock, '\0');
  const ssize_t got = descriptor < 0 ? -1 : ::read(descriptor, text.data(), text.size());
  if (got < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t space = line.find(' '); space != std::string::npos)
      values[line.substr(0, space)] = line.substr(space + 1);
  Owner owner{values["host"], values["machine"], values["token"], 0, values["began"], text};
  owner.process = std::strtol(values["process"].c_str(), nullptr, 10);
  return owner;
}

// Nothing when there is no lock.
std::optional<Owner> read_lock(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number < 0 && errno == ENOENT) return std::nullopt;
  std::optional<Owner> owner = read_lock(file.number);
  if (!owner) throw user_error("{}: cannot be read: {}", path, std::strerror(errno));
  return owner;
}

[[noreturn]] void refuse(const std::string& directory, const Owner& owner) {
  throw user_error(
      "{}: process {} on {} is training into it; wait until it has ended or stop it, or choose another directory with "
      "--run",
      directory, owner.process, owner.host);
}

}  // namespace

struct RunLock::Holder {
  Holder(const std::string& folder, RunLockTiming intervals)
      : directory(folder), path((fs::path(folder) / "lock").string()), timing(intervals), own(this_process()) {}

  bool create() const;
  bool is_stale(const Owner& found) const;
  void take_from(const Owner& stale) const;
  bool directory_is_gone() const;
  bool beat();
  void keep();

  const std::string directory, path;
  const RunLockTiming timing;
  const Owner own;
  std::uint64_t beats = 0;
  std::atomic<bool> lost = false;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::thread thread;
};

// link() creates the name together with its content, or fails; on NFS O_EXCL is not reliable. Where there are no hard
// links, O_EXCL is all there is, and the lock is empty for a moment: others then wait for a sign of life.
bool RunLock::Holder::create() const {
  const std::string text = lock_text(own, 0);
  {
    AtomicFile file(path + "-" + own.token);
    file.write(text.data(), text.size());
    if (::link(file.temporary_path().c_str(), path.c_str()) == 0) return true;
    if (errno == EEXIST) return false;
  }
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.number < 0 && errno == EEXIST) return false;
  if (file.number >= 0 && ::write(file.number, text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    return true;
  const int error = errno;
  if (file.number >= 0) ::unlink(path.c_str());
  throw user_error("{}: cannot be created: {}", path, std::strerror(error));
}

bool RunLock::Holder::is_stale(const Owner& found) const {
  if (found.machine == own.machine && found.process > 0) {
    const std::string began = beginning_of(found.process);
    return began.empty() || began != found.began;
  }
  spdlog::info("{}: a process on {} holds it or left it behind; waiting {:g} s for a sign of life", path,
               found.host.empty() ? "an unknown host" : found.host, timing.patience);
  for (double waited = 0; waited < timing.patience; waited += timing.beat / 4) {
    std::this_thread::sleep_for(duration<double>(timing.beat / 4));
    const std::optional<Owner> now = read_lock(path);
    if (!now || now->text != found.text) return false;  // check again
  }
  return true;
}

// Processes of one machine take turns, so that none moves a lock that another has created since it checked. Between
// hosts flock may not work, so that can still happen: then this process puts the lock back, or the holder notices at
// its next beat.
void RunLock::Holder::take_from(const Owner& stale) const {
  const FileDescriptor turn(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (turn.number >= 0) ::flock(turn.number, LOCK_EX);
  if (const std::optional<Owner> now = read_lock(path); !now || now->token != stale.token) return;
  const std::string aside = fmt::format("{}-{}-stale", path, own.token);
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  const std::optional<Owner> moved = read_lock(aside);
  const bool live = moved && moved->token != stale.token;
  if (const int error = live ? rename_to_new(aside, path) : 0; error != 0)
    spdlog::warn("{}: was moved aside and cannot be put back: {}", path, std::strerror(error));
  ::unlink(aside.c_str());
}

// False if the system cannot tell, as when a file server does not answer: that ends no run.
bool RunLock::Holder::directory_is_gone() const {
  std::error_code unknown;
  const fs::file_type type = fs::status(directory, unknown).type();
  return type != fs::file_type::directory && type != fs::file_type::none && type != fs::file_type::unknown;
}

// False when the lock cannot be read or written now. It writes to the file that it has read: if another process renames
// its own lock to this path in between, that one is left alone, and the next beat finds it.
bool RunLock::Holder::beat() try {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return errno == ENOENT && !directory_is_gone() && create();
  const std::optional<Owner> found = read_lock(descriptor);
  if (found && found->token != own.token) lost = true;
  const std::string text = lock_text(own, ++beats);
  const bool written =
      found && !lost && ::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  return ::close(descriptor) == 0 && (written || lost);  // closing is what makes it visible to other hosts
} catch (const UserError&) {
  return false;
}

void RunLock::Holder::keep() {
  int missed = 0;
  std::unique_lock lock(mutex);
  while (!lost && !changed.wait_for(lock, duration<double>(timing.beat), [&] { return stopping; })) {
    lock.unlock();
    missed = beat() ? 0 : missed + 1;
    if (missed > most_missed_beats && directory_is_gone()) lost = true;
    lock.lock();
  }
}

RunLock::RunLock(const std::string& directory, RunLockTiming timing)
    : holder_(std::make_unique<Holder>(directory, timing)) {
  Holder& h = *holder_;
  std::string looked_at;
  while (!h.create()) {
    const std::optional<Owner> found = read_lock(h.path);
    if (!found) continue;
    const bool again = !found->token.empty() && found->token == looked_at;
    looked_at = found->token;
    if (h.is_stale(*found))
      h.take_from(*found);
    else if (again || found->machine == h.own.machine)
      refuse(directory, *found);
  }
  sigset_t all, before;
  sigfillset(&all);  // the main thread handles signals
  pthread_sigmask(SIG_SETMASK, &all, &before);
  h.thread = std::thread([&h] { h.keep(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RunLock::~RunLock() {
  Holder& h = *holder_;
  {
    const std::lock_guard lock(h.mutex);
    h.stopping = true;
  }
  h.changed.notify_all();
  if (h.thread.joinable()) h.thread.join();
  try {
    const std::optional<Owner> found = read_lock(h.path);
    if (found && found->token == h.own.token) ::unlink(h.path.c_str());
  } catch (const UserError&) {  // a lock that cannot be read cannot be released; it goes stale
  }
}

bool RunLock::held() const {
  try {
    const std::optional<Owner> found = read_lock(holder_->path);
    if (found && found->token != holder_->own.token) holder_->lost = true;
  } catch (const UserError&) {  // a hiccup of the file server
  }
  return !holder_->lost;
}

void RunLock::check() const {
  if (holder_->lost)
    throw user_error(
        "{}: another process has taken over the run, or the directory is gone; this process stops, so that the two do "
        "not mix",
        holder_->directory);
}

}  // namespace longstride
