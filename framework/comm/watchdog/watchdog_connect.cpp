#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog/watchdog_start.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

using Kind = WatchdogMessage::Kind;

constexpr double head_start = 0.25;  // seconds that an address gets before the next one is tried
constexpr double try_again = 0.25, connected_within = 4;

// One of rank 0's addresses, tried until it answers.
class Attempt {
 public:
  Attempt(std::uint32_t address, std::uint16_t port, double due) : due_(due) {
    to_.sin_family = AF_INET;
    to_.sin_addr.s_addr = address;
    to_.sin_port = htons(port);
  }
  bool open() const { return link_.open(); }
  bool tried() const { return !outcome_.empty(); }
  bool greeted() const { return open() && greeted_; }
  double due() const { return due_; }
  pollfd event() const { return {link_.descriptor(), static_cast<short>(greeted_ ? POLLIN : POLLOUT), 0}; }
  WatchdogLink& link() { return link_; }

  std::string text() const {
    char address[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &to_.sin_addr, address, sizeof(address));
    return fmt::format("{}:{} ({})", address, ntohs(to_.sin_port), outcome_.empty() ? "not tried" : outcome_);
  }

  void begin() {
    greeted_ = false;
    since_ = watchdog_time();
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return fail(errno);
    link_ = WatchdogLink(descriptor);
    outcome_ = "no answer";
    if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&to_), sizeof(to_)) != 0 && errno != EINPROGRESS)
      fail(errno);
  }
  // Called after an event. Returns whether rank 0 has answered with the token.
  bool advance(const WatchdogMessage& hello) {
    if (!greeted_) {
      int error = 0;
      socklen_t size = sizeof(error);
      ::getsockopt(link_.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return fail(error), false;
      link_.send(hello);
      greeted_ = true;
      outcome_ = "connected, no answer";
      return false;
    }
    WatchdogMessage answer;
    const bool whole = link_.take(answer);
    if (whole && answer.kind == Kind::welcome && std::equal(answer.token, answer.token + 2, hello.token)) return true;
    if (whole) fail(EPROTO);  // another program listens at this address
    if (!whole && !link_.open()) fail(ECONNRESET);
    return false;
  }
  void check_time() {
    if (open() && !greeted_ && watchdog_time() > since_ + connected_within) fail(ETIMEDOUT);
  }

 private:
  void fail(int error) {
    link_.close();
    outcome_ = std::strerror(error);
    due_ = watchdog_time() + try_again;
  }

  sockaddr_in to_{};
  WatchdogLink link_;
  double due_, since_ = 0;
  bool greeted_ = false;
  std::string outcome_;
};

// Begins the attempts that are due, and the next one at once if none is in progress.
void begin_attempts(std::vector<Attempt>& attempts) {
  bool under_way = false;
  for (Attempt& a : attempts) {
    if (!a.open() && (watchdog_time() >= a.due() || (!under_way && !a.tried()))) a.begin();
    under_way = under_way || a.open();
  }
}

std::string why_not(const WatchdogAddress& address, const std::vector<Attempt>& attempts, double seconds) {
  std::string all;
  for (const Attempt& a : attempts) all += (all.empty() ? "" : ", ") + a.text();
  if (std::any_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.greeted(); }))
    return fmt::format(
        "rank 0 ({}) has not answered for {:.3g} s at {}: it has stopped, or is busy with a slow file system; check "
        "its host, then start again",
        address.host.data(), seconds, all);
  return fmt::format(
      "cannot connect to rank 0 ({}) within {:.3g} s at {}; open the network between the hosts, or set "
      "train.hang_seconds: 0 to run without the watchdog",
      address.host.data(), seconds, all);
}

}  // namespace

WatchdogLink connect_to_watchdog(const WatchdogAddress& address, int rank, const std::string& host, double seconds) {
  WatchdogMessage hello;
  hello.kind = Kind::hello;
  hello.rank = rank;
  hello.set_text(host);
  std::copy(address.token, address.token + 2, hello.token);
  const double start = watchdog_time(), end = start + seconds;
  std::vector<Attempt> attempts;
  for (std::int32_t i = 0; i < address.count; ++i)
    attempts.emplace_back(address.addresses[static_cast<std::size_t>(i)], address.port, start + head_start * i);
  while (watchdog_time() < end) {
    begin_attempts(attempts);
    std::vector<pollfd> events;
    for (const Attempt& a : attempts) events.push_back(a.event());
    ::poll(events.data(), events.size(),
           static_cast<int>(std::clamp(end - watchdog_time(), 0.0, head_start / 2) * 1000) + 1);
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (events[i].revents != 0 && attempts[i].advance(hello)) {
        WatchdogMessage chosen = hello;
        chosen.kind = Kind::chosen;
        attempts[i].link().send(chosen);
        return std::move(attempts[i].link());
      }
      attempts[i].check_time();
    }
  }
  throw CommunicationError(why_not(address, attempts, seconds));
}

}  // namespace longstride
