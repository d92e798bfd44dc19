#include "framework/comm/watchdog/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/watchdog/watchdog_rules.h"
#include "framework/comm/watchdog/watchdog_start.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

using Kind = WatchdogMessage::Kind;

// How late any rank may be at the start, for example because of a slow file system. Rank 0 waits longer, so that a rank
// that cannot connect has time to say why.
constexpr double start_seconds = 90, rank_0_seconds = start_seconds + 10;
constexpr double farewell_seconds = 5;
constexpr int lost_rank_code = 1;

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Rank 0 holds a connection to every other rank, and briefly a few more.
void allow_open_files(int ranks) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = 4 * static_cast<rlim_t>(ranks) + 1024;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool first_on_its_host() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char* text = std::getenv(name)) return std::atoi(text) == 0;
  return true;
}

// When Open MPI's mpirun ends a job, it waits forever for the daemon of a host that is cut off. A rank that mpirun
// started itself therefore leaves behind a process that ends mpirun if it lingers; the daemons that mpirun can reach
// notice its end. That process only makes calls that are safe after forking a multithreaded process.
void see_the_launcher_out() {
  constexpr int tenths = 40;
  const pid_t launcher = ::getppid();
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(launcher) + "/comm") >> std::ws, name);
  if (name != "mpirun" && name != "orterun" && name != "mpiexec" && name != "prterun") return;
  if (::fork() != 0) return;
  ::setsid();  // mpirun signals a rank's whole process group
  for (int descriptor = 0; descriptor < 3; ++descriptor) ::close(descriptor);  // and waits until its output is closed
  const timespec tenth = {0, 100'000'000};
  for (int i = 0; i < tenths; ++i) {
    ::nanosleep(&tenth, nullptr);
    if (::kill(launcher, 0) != 0) ::_exit(0);
  }
  ::kill(launcher, SIGKILL);
  ::_exit(0);
}

}  // namespace

struct Watchdog::Impl {
  Impl(Communicator& c, double seconds)
      : comm(c), rank(c.rank()), host(c.host()), hang(seconds), interval(std::clamp(seconds / 10, 0.05, 1.0)) {}

  void connect();
  void accept_all();
  void say(const std::string& text) const;
  void start();
  void stop();
  void watch();
  void hear(WatchdogPeer& peer);
  void judge(double time);
  [[noreturn]] void end_job(const std::string& cause, bool said, int code);
  [[noreturn]] void rank_0_is_lost(const std::string& cause);
  bool somebody_is_here() const;
  bool rank_0_answers();
  void tell_everybody(Kind kind, const std::string& text = "", bool said = false, int code = 0);

  Communicator& comm;
  const int rank;
  const std::string host;
  const double hang, interval;
  std::vector<WatchdogPeer> peers;  // rank 0: all other ranks, in order; elsewhere rank 0 alone
  std::vector<WatchdogLink> links;  // one per peer
  Standstill standstill;
  std::thread thread;
  std::atomic<bool> expecting = false, stopping = false, leaving = false;
  bool given_up = false;
  std::atomic<int> announced = 0;  // exit code of this rank's own failure
};

// One write, so that lines of several ranks do not interleave.
void Watchdog::Impl::say(const std::string& text) const {
  const std::string line = "longstride: " + text + "\n";
  if (!given_up) static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

void Watchdog::Impl::accept_all() {
  allow_open_files(comm.size());
  WatchdogListener listener;
  WatchdogAddress address = listener.address();
  host.copy(address.host.data(), address.host.size() - 1);
  comm.broadcast(&address, sizeof(address), 0);
  int missing = 0, first = 0;
  for (WatchdogListener::Guest& guest : listener.accept_ranks(comm.size(), rank_0_seconds)) {
    peers.emplace_back(static_cast<int>(peers.size()) + 1).host = guest.host;
    if (!guest.link.open() && ++missing == 1) first = peers.back().rank;
    links.push_back(std::move(guest.link));
  }
  if (missing == 0) return;
  see_the_launcher_out();
  throw CommunicationError(
      fmt::format("{} of the other {} ranks have not connected within {:.0f} s, the first of them rank {}: they have "
                  "stopped, or the network between their hosts and this one is blocked",
                  missing, peers.size(), rank_0_seconds, first));
}

void Watchdog::Impl::connect() {
  if (rank == 0) {
    accept_all();
  } else {
    WatchdogAddress address;
    comm.broadcast(&address, sizeof(address), 0);
    peers.emplace_back(0).host = address.host.data();
    try {
      links.push_back(connect_to_watchdog(address, rank, host, start_seconds));
    } catch (const CommunicationError&) {
      // Many ranks may fail for the same reason: the first to report it ends the job, which takes mpirun a few seconds.
      if (rank > 1) sleep_seconds(first_on_its_host() ? 2.0 : 6.0);
      see_the_launcher_out();
      throw;
    }
  }
  comm.barrier();  // a beat is expected only from ranks that have begun to send them
}

// The main thread handles signals.
void Watchdog::Impl::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watchdog::Impl::stop() {
  stopping = true;
  if (thread.joinable()) thread.join();
}

void Watchdog::Impl::tell_everybody(Kind kind, const std::string& text, bool said, int code) {
  WatchdogMessage message;
  message.kind = kind;
  message.rank = rank;
  message.entered = comm.entered();
  message.signs = comm.signs_of_life();
  message.exit_code = code;
  message.said = said ? 1 : 0;
  message.set_text(text);
  for (WatchdogLink& link : links)
    if (link.open()) link.send(message);
}

void Watchdog::Impl::watch() {
  double next_beat = watchdog_time(), last = watchdog_time();
  std::vector<pollfd> waits(links.size());
  double end = 0;  // when to stop waiting for the others to leave
  while (!stopping && (end == 0 || (watchdog_time() < end && somebody_is_here()))) {
    if (leaving && end == 0) {
      tell_everybody(Kind::farewell);
      end = watchdog_time() + farewell_seconds;
    }
    for (std::size_t i = 0; i < links.size(); ++i) waits[i] = {links[i].descriptor(), POLLIN, 0};
    ::poll(waits.data(), waits.size(), static_cast<int>(std::min(interval / 2, 0.1) * 1000));
    const double time = watchdog_time();
    if (const int code = announced.load(); code != 0) end_job("", true, code);
    // This process, or its whole host, was suspended: what the others sent meanwhile is about to be read.
    const double slept = time - last;
    last = time;
    for (WatchdogPeer& peer : peers)
      if (slept > 2 * interval) peer.heard += slept;
    if (slept > hang) given_up = true;  // the other ranks have already reported this one as lost
    for (std::size_t i = 0; i < links.size(); ++i)
      if (waits[i].revents != 0) hear(peers[i]);
    if (leaving) continue;
    if (time >= next_beat) {
      tell_everybody(Kind::beat);
      next_beat = time + interval;
      if (const std::string error = comm.pending_error(); !error.empty())
        end_job(fmt::format("rank {} ({}): {}", rank, host, error), false, lost_rank_code);
    }
    judge(time);
  }
}

bool Watchdog::Impl::somebody_is_here() const {
  for (std::size_t i = 0; i < links.size(); ++i)
    if (links[i].open() && !peers[i].left) return true;
  return false;
}

void Watchdog::Impl::hear(WatchdogPeer& peer) {
  WatchdogLink& link = links[static_cast<std::size_t>(&peer - peers.data())];
  if (!link.open()) return;
  for (const WatchdogMessage& message : link.receive()) {
    peer.heard = watchdog_time();
    if (message.kind == Kind::farewell) peer.left = true;
    if (message.kind == Kind::failure) end_job(message.text.data(), message.said != 0 || rank > 0, message.exit_code);
    peer.entered = message.entered;
    peer.signs = message.signs;
  }
  if (link.open() || peer.left) return;
  if (leaving) return;  // all are past the last collective operation
  const std::string cause =
      fmt::format("rank {} ({}) has ended without a word: it was killed, it crashed, or something in it called exit",
                  peer.rank, peer.host);
  if (rank > 0) rank_0_is_lost(cause);
  end_job(cause, false, lost_rank_code);
}

void Watchdog::Impl::judge(double time) {
  const std::string silent = silent_peers(peers, time, hang);
  if (!silent.empty() && rank > 0) rank_0_is_lost(silent);
  if (!silent.empty()) end_job(silent, false, lost_rank_code);
  if (rank > 0) return;
  WatchdogPeer own(0);
  own.host = host;
  own.entered = comm.entered();
  own.signs = comm.signs_of_life();
  const std::string stuck = standstill.find(own, peers, time, hang, expecting);
  if (!stuck.empty()) end_job(stuck, false, lost_rank_code);
}

// Rank 0 passes a failure on to all ranks, including the one that reported it.
bool Watchdog::Impl::rank_0_answers() {
  for (const double end = watchdog_time() + 1; watchdog_time() < end; sleep_seconds(0.01))
    for (const WatchdogMessage& message : links.front().receive())
      if (message.kind == Kind::failure) return true;
  return false;
}

// Rank 0 prints it, so that it appears once.
void Watchdog::Impl::end_job(const std::string& cause, bool said, int code) {
  if (!said && rank == 0) say(cause);
  if (!said) see_the_launcher_out();
  tell_everybody(Kind::failure, cause, said || rank == 0, code);
  if (!said && rank > 0 && !rank_0_answers()) say(cause);
  // The launcher forwards the message, which could be lost if the process ended at once.
  sleep_seconds(said && rank > 0 ? 0.3 : 0.2);
  ::_exit(code);
}

void Watchdog::Impl::rank_0_is_lost(const std::string& cause) {
  if (rank > 1) sleep_seconds(1);
  if (rank == 1 || first_on_its_host()) say(fmt::format("{} (found by rank {}, {})", cause, rank, host));
  see_the_launcher_out();
  sleep_seconds(0.2);
  ::_exit(lost_rank_code);
}

Watchdog::Watchdog(Communicator& comm, double hang_seconds) {
  if (comm.size() == 1 || hang_seconds <= 0) return;
  impl_ = std::make_unique<Impl>(comm, hang_seconds);
  impl_->connect();
  for (WatchdogPeer& peer : impl_->peers) peer.heard = watchdog_time();
  impl_->start();
}

Watchdog::~Watchdog() {
  if (impl_) impl_->stop();
}

void Watchdog::expect_progress(bool expected) {
  if (impl_) impl_->expecting = expected;
}

void Watchdog::announce_failure(int exit_code) {
  if (!impl_) return;
  impl_->announced = exit_code;
  sleep_seconds(5);  // the thread ends this process
}

void Watchdog::find_cause() {
  if (impl_) sleep_seconds(3);
}

void Watchdog::leave() {
  if (!impl_) return;
  impl_->comm.barrier();
  impl_->leaving = true;
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_.reset();
}

}  // namespace longstride
