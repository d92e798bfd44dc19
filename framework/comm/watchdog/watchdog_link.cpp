#include "framework/comm/watchdog/watchdog_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace longstride {
namespace {

constexpr std::size_t most_kept = 64 * sizeof(WatchdogMessage);
constexpr int most_at_once = 64;

}  // namespace

double watchdog_time() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

// A failure to send is noticed when the other end falls silent.
void WatchdogLink::flush() {
  while (open() && !out_.empty()) {
    const ssize_t sent = ::send(descriptor_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    out_.erase(out_.begin(), out_.begin() + sent);
  }
}

bool WatchdogLink::take(WatchdogMessage& message) {
  flush();
  while (open() && in_.size() < sizeof(message)) {
    char chunk[sizeof(message)];
    const ssize_t got = ::recv(descriptor_, chunk, sizeof(message) - in_.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) {
      close();
      return false;
    }
    in_.insert(in_.end(), chunk, chunk + got);
  }
  if (!open()) return false;
  std::memcpy(&message, in_.data(), sizeof(message));
  message.text.back() = 0;
  in_.clear();
  return true;
}

std::vector<WatchdogMessage> WatchdogLink::receive() {
  std::vector<WatchdogMessage> messages;
  WatchdogMessage message;
  for (int i = 0; i < most_at_once && take(message); ++i) messages.push_back(message);
  return messages;
}

}  // namespace longstride
