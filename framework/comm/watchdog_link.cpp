#include "framework/comm/watchdog_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "framework/comm/communicator.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t most_kept = 64 * sizeof(WatchdogMessage);
constexpr double handshake_seconds = 2;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 20));
}

bool ready(int descriptor, short events, Clock::time_point end) {
  pollfd p{descriptor, events, 0};
  int got = 0;
  do got = ::poll(&p, 1, milliseconds_until(end));
  while (got < 0 && errno == EINTR);
  return got > 0;
}

int new_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int connected_socket(std::uint32_t address, std::uint16_t port, Clock::time_point end) {
  const int descriptor = new_socket();
  if (descriptor < 0) return -1;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = address;
  to.sin_port = htons(port);
  int error = ::connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    error = ETIMEDOUT;
    if (ready(descriptor, POLLOUT, end)) ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

// The loopback first: it is the nearest for ranks on rank 0's host, and refuses at once elsewhere.
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

}  // namespace

void WatchdogMessage::set_text(const std::string& from) {
  text.fill(0);
  std::memcpy(text.data(), from.data(), std::min(from.size(), text.size() - 1));
}

WatchdogLink::WatchdogLink(int descriptor) : descriptor_(descriptor) {
  const int on = 1;
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

WatchdogLink::~WatchdogLink() { close(); }
WatchdogLink::WatchdogLink(WatchdogLink&& other) noexcept { *this = std::move(other); }
WatchdogLink& WatchdogLink::operator=(WatchdogLink&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  return *this;
}

void WatchdogLink::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void WatchdogLink::send(const WatchdogMessage& message) {
  const auto* bytes = reinterpret_cast<const char*>(&message);
  if (out_.size() < most_kept) out_.insert(out_.end(), bytes, bytes + sizeof(message));
  flush();
}

// What cannot be sent is noticed when the other end is heard no more.
void WatchdogLink::flush() {
  while (open() && !out_.empty()) {
    const ssize_t sent = ::send(descriptor_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    out_.erase(out_.begin(), out_.begin() + sent);
  }
}

std::vector<WatchdogMessage> WatchdogLink::receive() {
  flush();
  char chunk[8 * sizeof(WatchdogMessage)];
  while (open()) {
    const ssize_t got = ::recv(descriptor_, chunk, sizeof(chunk), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      close();
      break;
    }
    in_.insert(in_.end(), chunk, chunk + got);
  }
  std::vector<WatchdogMessage> messages(in_.size() / sizeof(WatchdogMessage));
  const std::size_t whole = messages.size() * sizeof(WatchdogMessage);
  if (whole > 0) std::memcpy(messages.data(), in_.data(), whole);
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(whole));
  for (WatchdogMessage& message : messages) message.text.back() = 0;
  return messages;
}

bool WatchdogLink::wait_for(WatchdogMessage& message, double seconds) {
  const Clock::time_point end = after(seconds);
  while (open() && in_.size() < sizeof(message)) {
    if (!ready(descriptor_, POLLIN, end)) return false;
    char chunk[sizeof(WatchdogMessage)];
    const ssize_t got = ::recv(descriptor_, chunk, sizeof(message) - in_.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    in_.insert(in_.end(), chunk, chunk + got);
  }
  if (in_.size() < sizeof(message)) return false;
  std::memcpy(&message, in_.data(), sizeof(message));
  message.text.back() = 0;
  in_.clear();
  return true;
}

WatchdogListener::WatchdogListener() : descriptor_(new_socket()) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(any);
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

WatchdogLink WatchdogListener::accept(WatchdogMessage& hello, double seconds) {
  const Clock::time_point end = after(seconds);
  while (ready(descriptor_, POLLIN, end)) {
    const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) continue;
    WatchdogLink link(descriptor);
    if (!link.wait_for(hello, handshake_seconds) || hello.kind != WatchdogMessage::Kind::hello ||
        !std::equal(hello.token, hello.token + 2, address_.token))
      continue;
    WatchdogMessage answer = hello;
    answer.rank = 0;
    link.send(answer);
    return link;
  }
  return {};
}

WatchdogLink connect_to_watchdog(const WatchdogAddress& address, WatchdogMessage hello, double seconds) {
  std::copy(address.token, address.token + 2, hello.token);
  const Clock::time_point end = after(seconds);
  do {
    for (std::int32_t i = 0; i < address.count; ++i) {
      const Clock::time_point soon = std::min(end, after(handshake_seconds));
      const int descriptor = connected_socket(address.addresses[static_cast<std::size_t>(i)], address.port, soon);
      if (descriptor < 0) continue;
      WatchdogLink link(descriptor);
      link.send(hello);
      WatchdogMessage answer;
      if (link.wait_for(answer, handshake_seconds) && std::equal(answer.token, answer.token + 2, address.token))
        return link;
    }
    ::poll(nullptr, 0, 50);
  } while (Clock::now() < end);
  return {};
}

}  // namespace longstride
