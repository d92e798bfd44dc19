#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog/watchdog_start.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

using Kind = WatchdogMessage::Kind;

constexpr double longest_poll = 0.25;

// The loopback comes first: it is fastest for ranks on rank 0's host, and elsewhere it refuses at once.
void find_own_addresses(WatchdogAddress& own) {
  const auto add = [&](std::uint32_t address) {
    if (own.count < static_cast<std::int32_t>(own.addresses.size()))
      own.addresses[static_cast<std::size_t>(own.count++)] = address;
  };
  add(htonl(INADDR_LOOPBACK));
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) != 0 &&
        (i->ifa_flags & IFF_LOOPBACK) == 0)
      add(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr);
  ::freeifaddrs(all);
}

// Takes the same time for every token.
bool same_token(const std::uint64_t* a, const std::uint64_t* b) { return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0; }

// The connections that no rank has chosen yet: strangers, and those that have shown the token.
class Lobby {
 public:
  Lobby(const WatchdogAddress& address, int ranks)
      : address_(address),
        most_strangers_(64 + 2 * static_cast<std::size_t>(ranks)),
        guests_(static_cast<std::size_t>(ranks - 1)) {}

  bool complete() const {
    return std::all_of(guests_.begin(), guests_.end(), [](const auto& guest) { return guest.link.open(); });
  }
  std::vector<WatchdogListener::Guest> guests() { return std::move(guests_); }

  // Accepts new connections, a bounded number at a time. When file descriptors run out, it drops the oldest stranger.
  void open_doors(int listener) {
    for (std::size_t i = 0; i < most_strangers_; ++i) {
      const int descriptor = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (descriptor < 0 && (errno == EMFILE || errno == ENFILE) && drop_oldest_stranger()) continue;
      if (descriptor < 0) return;
      waiting_.push_back({WatchdogLink(descriptor), watchdog_time()});
      if (strangers() > most_strangers_) drop_oldest_stranger();
    }
  }
  void listen_to(std::size_t i) {
    Waiting& one = waiting_[i];
    WatchdogMessage message;
    while (one.link.take(message)) {
      if (one.rank == 0 && message.kind == Kind::hello && same_token(message.token, address_.token) &&
          0 < message.rank && message.rank <= static_cast<std::int32_t>(guests_.size())) {
        one.rank = message.rank;
        one.host = message.text.data();
        message.kind = Kind::welcome;
        message.rank = 0;
        one.link.send(message);
      } else if (one.rank > 0 && message.kind == Kind::chosen) {
        guests_[static_cast<std::size_t>(one.rank - 1)] = {std::move(one.link), one.host};
        return;
      } else {
        one.link.close();
      }
    }
  }
  void clear_out(double hello_seconds) {
    const double oldest = watchdog_time() - hello_seconds;
    std::erase_if(waiting_, [&](const Waiting& w) { return !w.link.open() || (w.rank == 0 && w.since < oldest); });
  }
  // The descriptors to wait for: the listener first, then the connections, in order.
  std::vector<pollfd> events(int listener) const {
    std::vector<pollfd> all = {{listener, POLLIN, 0}};
    for (const Waiting& w : waiting_) all.push_back({w.link.descriptor(), POLLIN, 0});
    return all;
  }

 private:
  struct Waiting {
    WatchdogLink link;
    double since;
    int rank = 0;  // 0: a stranger
    std::string host = {};
  };

  std::size_t strangers() const {
    return static_cast<std::size_t>(
        std::count_if(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.rank == 0; }));
  }
  bool drop_oldest_stranger() {
    const auto oldest = std::find_if(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.rank == 0; });
    if (oldest == waiting_.end()) return false;
    waiting_.erase(oldest);
    return true;
  }

  const WatchdogAddress& address_;
  const std::size_t most_strangers_;
  std::vector<Waiting> waiting_;  // in order of arrival
  std::vector<WatchdogListener::Guest> guests_;
};

}  // namespace

WatchdogListener::WatchdogListener() {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(any);
  descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor_ < 0 || ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
      ::listen(descriptor_, 4096) != 0 || ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&any), &size) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw CommunicationError(fmt::format("rank 0 cannot listen for the other ranks: {}", std::strerror(error)));
  }
  address_.port = ntohs(any.sin_port);
  find_own_addresses(address_);
  std::random_device random;
  for (std::uint64_t& half : address_.token) half = std::uint64_t{random()} << 32 | random();
}

WatchdogListener::~WatchdogListener() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<WatchdogListener::Guest> WatchdogListener::accept_ranks(int ranks, double seconds, double hello_seconds) {
  Lobby lobby(address_, ranks);
  for (const double end = watchdog_time() + seconds; !lobby.complete() && watchdog_time() < end;) {
    std::vector<pollfd> events = lobby.events(descriptor_);
    const double wait = std::clamp(end - watchdog_time(), 0.0, std::min(longest_poll, hello_seconds));
    ::poll(events.data(), events.size(), static_cast<int>(wait * 1000) + 1);
    for (std::size_t i = 1; i < events.size(); ++i)
      if (events[i].revents != 0) lobby.listen_to(i - 1);
    lobby.clear_out(hello_seconds);
    lobby.open_doors(descriptor_);
  }
  return lobby.guests();
}

}  // namespace longstride
