#include "framework/train/run/stop.h"

#include <gtest/gtest.h>

#include <csignal>

namespace longstride {
namespace {

TEST(Stop, EveryStopSignalIsNoted) {
  catch_stop_signals();
  for (int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    clear_stop_request();
    EXPECT_FALSE(stop_requested());
    std::raise(number);
    EXPECT_TRUE(stop_requested());
    EXPECT_EQ(stop_signal(), number);
  }
  clear_stop_request();
}

TEST(StopDeathTest, AHangupIgnoredAtTheStartStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        catch_stop_signals();
        std::raise(SIGHUP);
        std::_Exit(stop_requested() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopDeathTest, AClosedPipeEndsNothing) {
  EXPECT_EXIT(
      {
        catch_stop_signals();
        std::raise(SIGPIPE);
        std::_Exit(stop_requested() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopDeathTest, ASecondInterruptEndsAtOnce) {
  EXPECT_EXIT(
      {
        catch_stop_signals();
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(StopDeathTest, ASecondTerminateStillStopsCleanly) {
  EXPECT_EXIT(
      {
        catch_stop_signals();
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::_Exit(stop_requested() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Whatever comes in between; mpirun and shells send several.
TEST(StopDeathTest, OnlyASecondInterruptEndsAtOnceAndTheFirstSaysSo) {
  EXPECT_EXIT(
      {
        catch_stop_signals(training_stops);
        for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR1, SIGHUP, SIGTERM})
          std::raise(number);
        if (stop_requested()) std::raise(SIGINT);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGINT),
      "^stopping after this step\nstopping after this step; Ctrl-C again to stop now\n$");
}

TEST(StopDeathTest, OtherSignalsNeverEndTheProcess) {
  EXPECT_EXIT(
      {
        catch_stop_signals(training_stops);
        for (int i = 0; i < 5; ++i)
          for (const int number : {SIGHUP, SIGTERM, SIGUSR1}) std::raise(number);
        std::raise(SIGINT);
        for (const int number : {SIGTERM, SIGUSR1, SIGHUP}) std::raise(number);
        std::_Exit(stop_requested() ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace longstride
