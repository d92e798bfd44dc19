#include "framework/train/metrics/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace longstride::progress_test {
namespace {

const Progress sample = {1200, 73000, 2.1314, 10234, 0.3119, 18720.0, "bits/byte"};

TEST(ProgressText, SaysWhereTheRunIs) {
  EXPECT_EQ(progress_text(sample, 100),
            "step 1,200/73,000 | 2.131 bits/byte | 10.2k tokens/s | MFU 31.2% | 5 h 12 min left");
}

TEST(ProgressText, LeavesOutTheMfuThatIsUnknown) {
  Progress p = sample;
  p.mfu.reset();
  p.seconds_left.reset();
  EXPECT_EQ(progress_text(p, 100), "step 1,200/73,000 | 2.131 bits/byte | 10.2k tokens/s | time left unknown");
}

TEST(ProgressText, NeverExceedsTheWidthAndLeavesOutWholePieces) {
  const std::string whole = progress_text(sample, 1000);
  for (int width = 0; width <= 100; ++width) {
    const std::string text = progress_text(sample, width);
    ASSERT_LE(text.size(), static_cast<std::size_t>(width));
    EXPECT_TRUE(whole.starts_with(text));
    if (width >= 17) {
      EXPECT_TRUE(text == whole || whole.substr(text.size(), 3) == " | ") << text;
    }
  }
}

TEST(DurationText, UsesTheUnitsAPersonWould) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(99.4), "99 s");
  EXPECT_EQ(duration_text(100), "2 min");
  EXPECT_EQ(duration_text(59.6 * 60), "1 h 0 min");
  EXPECT_EQ(duration_text(5 * 3600 + 12 * 60), "5 h 12 min");
  EXPECT_EQ(duration_text(23.999 * 3600), "1 d 0 h");
  EXPECT_EQ(duration_text(76 * 3600), "3 d 4 h");
  EXPECT_EQ(duration_text(std::nan("")), "unknown time");
  EXPECT_EQ(duration_text(HUGE_VAL), "unknown time");
}

TEST(RateText, KeepsThreeDigits) {
  EXPECT_EQ(rate_text(0), "0");
  EXPECT_EQ(rate_text(950.4), "950");
  EXPECT_EQ(rate_text(999.6), "1.00k");
  EXPECT_EQ(rate_text(9994), "9.99k");
  EXPECT_EQ(rate_text(9996), "10.0k");
  EXPECT_EQ(rate_text(265e3), "265k");
  EXPECT_EQ(rate_text(999.6e3), "1.00M");
  EXPECT_EQ(rate_text(5.8e6), "5.80M");
  EXPECT_EQ(rate_text(1.5e9), "1.50G");
  EXPECT_EQ(rate_text(std::nan("")), "unknown");
}

const std::string unknowns = " | 1.000 bits/byte | 100 tokens/s | time left unknown";

Progress at(std::int64_t step) { return {step, 3, 1, 100, {}, {}, "bits/byte"}; }

std::string content_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  return text;
}

TEST(ProgressLine, ALogGetsPlainLinesNoMoreOftenThanAsked) {
  std::FILE* log = std::tmpfile();
  {
    ProgressLine line(log, 3600);
    for (std::int64_t step : {1, 2, 3}) line.update(at(step));
    EXPECT_EQ(content_of(log), "step 1/3" + unknowns + "\n");
  }  // the destructor writes what was held back, once
  EXPECT_EQ(content_of(log), "step 1/3" + unknowns + "\nstep 3/3" + unknowns + "\n");
  std::fclose(log);
}

TEST(ProgressLine, ALogGetsEveryLineWhenNothingIsHeldBack) {
  std::FILE* log = std::tmpfile();
  {
    ProgressLine line(log, 0);
    for (std::int64_t step : {1, 2}) line.update(at(step));
    line.finish();
  }
  EXPECT_EQ(content_of(log), "step 1/3" + unknowns + "\nstep 2/3" + unknowns + "\n");
  std::fclose(log);
}

TEST(ProgressLine, ATerminalGetsOneLineThatFitsItsWidth) {
  int master = -1, slave = -1;
  winsize window = {};
  window.ws_col = 40;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &window), 0);
  std::FILE* terminal = ::fdopen(slave, "w");
  {
    ProgressLine line(terminal);
    line.update(at(1));
    line.update(at(2));  // too soon to be drawn
    line.finish();
  }
  std::string shown;  // a terminal delivers its output in pieces
  char bytes[1000];
  while (shown.find('\n') == std::string::npos) {
    const ssize_t count = ::read(master, bytes, sizeof(bytes));
    ASSERT_GT(count, 0);
    shown.append(bytes, static_cast<std::size_t>(count));
  }
  const std::string pieces = " | 1.000 bits/byte";
  EXPECT_EQ(shown, "\rstep 1/3" + pieces + "\x1b[K\rstep 2/3" + pieces + "\x1b[K\r\n");
  std::fclose(terminal);
  ::close(master);
}

}  // namespace
}  // namespace longstride::progress_test
