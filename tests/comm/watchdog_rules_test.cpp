// Conclusions of the watchdog from heartbeats, with made-up times.
#include "framework/comm/watchdog/watchdog_rules.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

WatchdogPeer peer(int rank, double heard, std::int64_t entered = 0, std::int64_t signs = 0) {
  WatchdogPeer p(rank);
  p.host = "node" + std::to_string(rank / 2);
  p.heard = heard;
  p.entered = entered;
  p.signs = signs;
  return p;
}

TEST(WatchdogRules, SilenceIsNoticedAfterItsTimeAndNotBefore) {
  EXPECT_EQ(silent_peers({peer(1, 100), peer(2, 96)}, 105, 10), "");
  EXPECT_EQ(silent_peers({peer(1, 106), peer(2, 96)}, 107, 10),
            "rank 2 (node1) has not answered for 11 s: stopped, or its host or the network to it is down");
}

TEST(WatchdogRules, RanksOfOneOutageAreNamedTogether) {
  EXPECT_EQ(silent_peers({peer(1, 106), peer(2, 96), peer(3, 98), peer(4, 99.5)}, 107, 10),
            "rank 2 (node1), rank 3 (node1) have not answered for 11 s: stopped, or their host or the network to it is "
            "down");
  std::vector<WatchdogPeer> many;
  for (int r = 1; r <= 20; ++r) many.push_back(peer(r, 0));
  EXPECT_NE(silent_peers(many, 20, 10).find("rank 8 (node4) and 12 more have not answered"), std::string::npos);
}

TEST(WatchdogRules, ARankThatHasLeftMayBeSilent) {
  WatchdogPeer left = peer(1, 0);
  left.left = true;
  EXPECT_EQ(silent_peers({left}, 100, 10), "");
}

TEST(WatchdogRules, TheRankThatTheOthersWaitForHangs) {
  Standstill standstill;
  for (double t = 0; t < 10; ++t)
    EXPECT_EQ(standstill.find(peer(0, t, 8, 8), {peer(1, t, 8, 8), peer(2, t, 7, 7)}, t, 10, true), "");
  EXPECT_EQ(standstill.find(peer(0, 11, 8, 8), {peer(1, 11, 8, 8), peer(2, 11, 7, 7)}, 11, 10, true),
            "rank 2 (node1) hangs: rank 0 (node0) and others have waited for it for 11 s");
}

TEST(WatchdogRules, ARankThatIsBehindButWorksDoesNotHang) {
  Standstill standstill;
  std::int64_t signs = 0;
  for (double t = 0; t < 200; ++t)
    EXPECT_EQ(standstill.find(peer(0, t, 8, 8), {peer(1, t, 7, ++signs)}, t, 10, true), "");
}

TEST(WatchdogRules, NoProgressIsFineWhenNoneIsExpected) {
  Standstill standstill;
  for (double t = 0; t < 2000; t += 5)
    EXPECT_EQ(standstill.find(peer(0, t, 8, 8), {peer(1, t, 7, 7)}, t, 10, false), "");
}

// All wait at one point: that counts as a long step until the run has shown how long its steps are.
TEST(WatchdogRules, AStandstillOfAllIsDetectedLaterThanThatOfOneRank) {
  Standstill fresh;
  EXPECT_EQ(fresh.find(peer(0, 0, 1, 1), {peer(1, 0, 1, 1)}, 0, 10, true), "");
  EXPECT_EQ(fresh.find(peer(0, 0, 1, 1), {peer(1, 0, 1, 1)}, 239, 10, true), "");
  EXPECT_NE(fresh.find(peer(0, 0, 1, 1), {peer(1, 0, 1, 1)}, 241, 10, true), "");

  Standstill known;
  double t = 0;
  for (std::int64_t step = 0; step < 40; ++step, t += 6)
    EXPECT_EQ(known.find(peer(0, t, step, step), {peer(1, t, step, step)}, t, 10, true), "");
  EXPECT_EQ(known.find(peer(0, t, 39, 39), {peer(1, t, 39, 39)}, t + 50, 10, true), "");
  EXPECT_EQ(known.find(peer(0, t, 39, 39), {peer(1, t, 39, 39)}, t + 61, 10, true),
            "rank 0 (node0) and all other ranks hang at the same point: no step has ended for 67 s");
}

}  // namespace
}  // namespace longstride
