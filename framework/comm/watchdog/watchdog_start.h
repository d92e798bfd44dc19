// How the watchdogs of a job find each other: rank 0 listens, tells all ranks where through the communicator, and they
// connect. On every connection
//   a rank says hello, with the token that came through the communicator;
//   rank 0 answers with a welcome, and sends nothing to a connection that has not shown the token;
//   the rank says which of its connections it has chosen (the first that was welcomed), and closes the others.
// Both sides handle all connections concurrently, so strangers delay no rank and rank 0 may be late.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/comm/watchdog/watchdog_link.h"

namespace longstride {

struct WatchdogAddress {
  std::array<std::uint32_t, 32> addresses{};  // IPv4, network order, of interfaces that are up; the loopback first
  std::int32_t count = 0;
  std::uint16_t port = 0;
  std::uint64_t token[2] = {0, 0};
  std::array<char, 256> host{};  // rank 0's
};

class WatchdogListener {
 public:
  WatchdogListener();  // on every interface; CommunicationError if no socket can be opened
  ~WatchdogListener();
  WatchdogListener(const WatchdogListener&) = delete;
  WatchdogListener& operator=(const WatchdogListener&) = delete;
  WatchdogAddress address() const { return address_; }

  struct Guest {
    WatchdogLink link;
    std::string host;
  };
  // The connections of ranks 1 to ranks - 1, in order: for each rank the last one that it chose. A link is closed if
  // its rank has not connected within `seconds`. A connection that takes longer than `hello_seconds` to show the token
  // is dropped, and so is the oldest when there are too many of them.
  std::vector<Guest> accept_ranks(int ranks, double seconds, double hello_seconds = 10);

 private:
  int descriptor_ = -1;
  WatchdogAddress address_;
};

// Rank `rank`'s connection to rank 0, through the address that answers first. CommunicationError after `seconds`: rank
// 0 does not answer or cannot be reached; the message gives the outcome for each address.
WatchdogLink connect_to_watchdog(const WatchdogAddress& address, int rank, const std::string& host, double seconds);

}  // namespace longstride
