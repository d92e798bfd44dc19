// One TCP connection of the watchdog: messages of one fixed size, never waiting. IPv4; all ranks run the same program,
// so a message travels as it lies in memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

struct WatchdogMessage {
  enum class Kind : std::int32_t { hello, beat, failure, farewell };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;
  std::int64_t entered = 0;         // beat: Communicator::entered
  std::int64_t signs = 0;           // beat: Communicator::signs_of_life
  std::uint64_t token[2] = {0, 0};  // hello: what rank 0 gave to all through the communicator
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
  // Whole messages that have arrived. Closes when the other end has.
  std::vector<WatchdogMessage> receive();
  // Waits for one message; false when none comes in time.
  bool wait_for(WatchdogMessage& message, double seconds);

 private:
  void flush();
  int descriptor_ = -1;
  std::vector<char> in_, out_;
};

// Where rank 0 listens, on every interface, as the others are told through the communicator.
struct WatchdogAddress {
  std::array<std::uint32_t, 32> addresses{};  // IPv4, network order, of interfaces that are up; the loopback first
  std::int32_t count = 0;
  std::uint16_t port = 0;
  std::uint64_t token[2] = {0, 0};
  std::array<char, 256> host{};
};

class WatchdogListener {
 public:
  WatchdogListener();  // CommunicationError when there is no socket to be had
  ~WatchdogListener();
  WatchdogListener(const WatchdogListener&) = delete;
  WatchdogListener& operator=(const WatchdogListener&) = delete;
  WatchdogAddress address() const { return address_; }
  // The next connection that says hello with the right token; a closed link when none comes in time.
  WatchdogLink accept(WatchdogMessage& hello, double seconds);

 private:
  int descriptor_ = -1;
  WatchdogAddress address_;
};

// Connects to rank 0 through the first of its addresses that answers with the token; a closed link when none does.
WatchdogLink connect_to_watchdog(const WatchdogAddress& address, WatchdogMessage hello, double seconds);

}  // namespace longstride
