// Ranks find each other while strangers connect, stay silent, send garbage or false messages. Ranks are threads here.
#include "framework/comm/watchdog/watchdog_start.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/comm/communicator.h"

namespace longstride {
namespace {

using Kind = WatchdogMessage::Kind;
using Guests = std::vector<WatchdogListener::Guest>;

void sleep_milliseconds(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

// A connection made by the test, which sends what it is told to.
class Caller {
 public:
  explicit Caller(const WatchdogAddress& address) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(address.port);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  Caller(Caller&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  ~Caller() { hang_up(); }
  void hang_up() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void say(const void* bytes, std::size_t count) {
    EXPECT_EQ(::send(socket_, bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  void say(const WatchdogMessage& message) { say(&message, sizeof(message)); }
  void flood() {  // sends as much as the other end accepts at once
    const std::string much(1 << 20, 'x');
    EXPECT_GT(::send(socket_, much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT), 0);
  }
  // Bytes received until the other end closes; -1 if it has not closed after `milliseconds`.
  std::int64_t heard(int milliseconds = 2000) {
    std::int64_t count = 0;
    char chunk[4096];
    for (pollfd p{socket_, POLLIN, 0}; ::poll(&p, 1, milliseconds) > 0;) {
      const ssize_t got = ::recv(socket_, chunk, sizeof(chunk), 0);
      if (got <= 0) return count;  // also when it resets the connection without reading everything
      count += got;
    }
    return -1;
  }
  WatchdogMessage answer() {
    WatchdogMessage message;
    EXPECT_EQ(::recv(socket_, &message, sizeof(message), MSG_WAITALL), static_cast<ssize_t>(sizeof(message)));
    return message;
  }

 private:
  int socket_;
};

WatchdogMessage hello_of(int rank, const WatchdogAddress& address, Kind kind = Kind::hello) {
  WatchdogMessage message;
  message.kind = kind;
  message.rank = rank;
  message.token[0] = address.token[0];
  message.token[1] = address.token[1];
  message.set_text("node" + std::to_string(rank));
  return message;
}

// Rank 0, and the others when they are told to connect.
class WatchdogStart : public ::testing::Test {
 protected:
  void accept(int ranks, double seconds = 20, double hello_seconds = 10) {
    rank_0_ = std::thread([=, this] { guests_ = listener_.accept_ranks(ranks, seconds, hello_seconds); });
  }
  void come(int first, int last) {
    for (int r = first; r <= last; ++r)
      others_.emplace_back([this, r] {
        links_[static_cast<std::size_t>(r)] =
            connect_to_watchdog(listener_.address(), r, "node" + std::to_string(r), 20);
      });
  }
  void meet() {
    for (std::thread& other : others_) other.join();
    others_.clear();
    if (rank_0_.joinable()) rank_0_.join();
  }
  // Every rank's own connection is the one that rank 0 has for it.
  void expect_whole(int ranks) {
    meet();
    ASSERT_EQ(guests_.size(), static_cast<std::size_t>(ranks - 1));
    for (int r = 1; r < ranks; ++r) {
      WatchdogListener::Guest& guest = guests_[static_cast<std::size_t>(r - 1)];
      ASSERT_TRUE(guest.link.open()) << r;
      EXPECT_EQ(guest.host, "node" + std::to_string(r));
      WatchdogMessage word, heard;
      word.entered = 1000 + r;
      guest.link.send(word);
      pollfd p{links_[static_cast<std::size_t>(r)].descriptor(), POLLIN, 0};
      ::poll(&p, 1, 2000);
      ASSERT_TRUE(links_[static_cast<std::size_t>(r)].take(heard)) << r;
      EXPECT_EQ(heard.entered, 1000 + r);
    }
  }
  void TearDown() override { meet(); }

  WatchdogListener listener_;
  Guests guests_;
  std::array<WatchdogLink, 64> links_;  // by rank
  std::thread rank_0_;
  std::vector<std::thread> others_;
};

TEST_F(WatchdogStart, SixtyFourRanksMeetAtOnce) {
  accept(64);
  come(1, 63);
  expect_whole(64);
}

TEST_F(WatchdogStart, Rank0MayBeLate) {
  come(1, 3);
  sleep_milliseconds(300);
  accept(4);
  expect_whole(4);
}

TEST_F(WatchdogStart, SilentConnectionsDelayNoRankAndTheOldestAreDroppedFirst) {
  std::vector<Caller> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(listener_.address());
  const double begin = watchdog_time();
  accept(4);
  come(1, 2);
  EXPECT_EQ(silent.front().heard(), 0);
  EXPECT_EQ(silent.back().heard(100), -1);
  come(3, 3);
  expect_whole(4);
  EXPECT_LT(watchdog_time() - begin, 2);
}

TEST_F(WatchdogStart, AConnectionThatKeepsSilentIsDroppedInTime) {
  Caller silent(listener_.address());
  accept(2, 20, 0.2);
  EXPECT_EQ(silent.heard(), 0);
  come(1, 1);
  expect_whole(2);
}

TEST_F(WatchdogStart, NothingIsSentToAConnectionWithoutTheToken) {
  accept(3);
  WatchdogMessage wrong = hello_of(1, listener_.address());
  wrong.token[1] ^= 1;
  std::vector<WatchdogMessage> lies = {wrong};
  for (int rank : {0, 3, -1, 1 << 30}) lies.push_back(hello_of(rank, listener_.address()));
  for (Kind kind : {Kind::welcome, Kind::chosen, Kind::beat, Kind::failure, Kind::farewell})
    lies.push_back(hello_of(1, listener_.address(), kind));
  for (const WatchdogMessage& lie : lies) {
    Caller stranger(listener_.address());
    stranger.say(lie);
    EXPECT_EQ(stranger.heard(), 0) << static_cast<int>(lie.kind) << " of rank " << lie.rank;
  }
  Caller flood(listener_.address());
  flood.flood();
  EXPECT_EQ(flood.heard(), 0);
  come(1, 2);
  expect_whole(3);
}

TEST_F(WatchdogStart, AHelloMayComeByteByByteWhileOthersMeet) {
  accept(3);
  Caller slow(listener_.address());
  const WatchdogMessage hello = hello_of(1, listener_.address());
  come(2, 2);
  for (std::size_t i = 0; i < sizeof(hello); ++i) {
    slow.say(reinterpret_cast<const char*>(&hello) + i, 1);
    if (i % 64 == 0) sleep_milliseconds(5);
  }
  EXPECT_EQ(slow.answer().kind, Kind::welcome);
  slow.say(hello_of(1, listener_.address(), Kind::chosen));
  meet();
  EXPECT_TRUE(guests_[0].link.open() && guests_[1].link.open());
}

TEST_F(WatchdogStart, ALaterConnectionOfARankReplacesTheEarlier) {
  accept(3);
  for (const bool dead : {true, false}) {
    Caller earlier(listener_.address());
    earlier.say(hello_of(1, listener_.address()));
    earlier.answer();
    earlier.say(hello_of(1, listener_.address(), Kind::chosen));
    if (dead) earlier.hang_up();
    sleep_milliseconds(50);
    come(1, 1);
    others_.back().join();
    others_.pop_back();
    if (!dead) {
      EXPECT_EQ(earlier.heard(), 0);  // closed once the later one is chosen
    }
  }
  come(2, 2);
  expect_whole(3);
}

TEST_F(WatchdogStart, ARankThatDiesBeforeItsTurnMayComeAgain) {
  for (int i = 0; i < 3; ++i) {
    Caller dead(listener_.address());
    dead.say(hello_of(1, listener_.address()));
  }
  accept(2);
  come(1, 1);
  expect_whole(2);
}

std::string failure_of(const WatchdogAddress& address, double seconds) {
  try {
    connect_to_watchdog(address, 1, "node1", seconds);
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "";
}

TEST_F(WatchdogStart, SilenceOfRank0AndABlockedNetworkAreToldApart) {
  WatchdogAddress address = listener_.address();
  std::string("node0").copy(address.host.data(), 5);
  address.count = 1;
  const std::string silence = failure_of(address, 0.2), where = "127.0.0.1:" + std::to_string(address.port);
  EXPECT_EQ(silence, "rank 0 (node0) has not answered for 0.2 s at " + where +
                         " (connected, no answer): it has stopped, or is busy with a slow file system; check its "
                         "host, then start again");
  const Caller other(address);  // keeps the port from being reused
  address.port = 1;
  EXPECT_EQ(failure_of(address, 0.2),
            "cannot connect to rank 0 (node0) within 0.2 s at 127.0.0.1:1 (Connection refused); open the network "
            "between the hosts, or set train.hang_seconds: 0 to run without the watchdog");
}

TEST_F(WatchdogStart, AnAddressThatLeadsNowhereDelaysNoRank) {
  WatchdogAddress address = listener_.address();
  address.addresses = {htonl(0xc0000201), htonl(INADDR_LOOPBACK)};  // 192.0.2.1, reserved for documentation
  address.count = 2;
  const double begin = watchdog_time();
  accept(2);
  EXPECT_TRUE(connect_to_watchdog(address, 1, "node1", 20).open());
  EXPECT_LT(watchdog_time() - begin, 2);
}

TEST_F(WatchdogStart, ARankThatNeverComesIsMissing) {
  accept(3, 0.2);
  come(2, 2);
  meet();
  EXPECT_FALSE(guests_[0].link.open());
  EXPECT_TRUE(guests_[1].link.open());
}

}  // namespace
}  // namespace longstride
