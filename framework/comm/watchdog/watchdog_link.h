// One TCP connection of the watchdog: non-blocking, with messages of a fixed size. IPv4; all ranks run the same
// program, so a message is sent as it is in memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

double watchdog_time();  // seconds of a monotonic clock

struct WatchdogMessage {
  enum class Kind : std::int32_t { hello, welcome, chosen, beat, failure, farewell };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;
  std::int64_t entered = 0;         // beat: Communicator::entered
  std::int64_t signs = 0;           // beat: Communicator::signs_of_life
  std::uint64_t token[2] = {0, 0};  // hello, welcome: what rank 0 sent to all through the communicator
  std::int32_t exit_code = 0;       // failure
  std::int32_t said = 0;            // failure: the rank has already printed the text
  std::array<char, 464> text{};     // hello: the host; failure: what happened; always ends with a 0

  void set_text(const std::string& from);
};
static_assert(sizeof(WatchdogMessage) == 512);

class WatchdogLink {
 public:
  WatchdogLink() = default;
  explicit WatchdogLink(int descriptor);  // takes ownership of a connected socket
  ~WatchdogLink();
  WatchdogLink(WatchdogLink&& other) noexcept;
  WatchdogLink& operator=(WatchdogLink&& other) noexcept;

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();
  // Sends as much as the network accepts now; the rest follows with the next call. At most a few messages are kept for
  // a peer that accepts none.
  void send(const WatchdogMessage& message);
  // Takes a message if a whole one has arrived, and reads nothing beyond it. Closes when the other end has closed.
  bool take(WatchdogMessage& message);
  // The messages that have arrived, a bounded number at a time; poll() reports the rest.
  std::vector<WatchdogMessage> receive();

 private:
  void flush();
  int descriptor_ = -1;
  std::vector<char> in_, out_;
};

}  // namespace longstride
