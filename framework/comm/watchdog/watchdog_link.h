// One TCP connection of the watchdog: messages of one fixed size, never waiting. IPv4; all ranks run the same program,
// so a message travels as it lies in memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

double watchdog_time();  // seconds of a clock that only runs forward

struct WatchdogMessage {
  enum class Kind : std::int32_t { hello, welcome, chosen, beat, failure, farewell };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;
  std::int64_t entered = 0;         // beat: Communicator::entered
  std::int64_t signs = 0;           // beat: Communicator::signs_of_life
  std::uint64_t token[2] = {0, 0};  // hello, welcome: what rank 0 gave to all through the communicator
  std::int32_t exit_code = 0;       // failure
  std::int32_t said = 0;            // failure: its rank has printed the text already
  std::array<char, 464> text{};     // hello: the host; failure: what happened; always ends with a 0

  void set_text(const std::string& from);
};
static_assert(sizeof(WatchdogMessage) == 512);

class WatchdogLink {
 public:
  WatchdogLink() = default;
  explicit WatchdogLink(int descriptor);  // of a connected socket, which it owns from here on
  ~WatchdogLink();
  WatchdogLink(WatchdogLink&& other) noexcept;
  WatchdogLink& operator=(WatchdogLink&& other) noexcept;

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();
  // Hands over as much as the network takes now; the rest goes with the next call. A peer that takes nothing gets no
  // more than a few messages kept for it.
  void send(const WatchdogMessage& message);
  // Whether a whole message has arrived, which is then taken; no byte beyond it is read. Closes when the other end has.
  bool take(WatchdogMessage& message);
  // The messages that have arrived, a bounded number at a time; poll() tells of the rest.
  std::vector<WatchdogMessage> receive();

 private:
  void flush();
  int descriptor_ = -1;
  std::vector<char> in_, out_;
};

}  // namespace longstride
