// `longstride sample` past the context: text as it is drawn, what a signal leaves, and several prompts.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "launch/sample/streamed_text.h"
#include "tests/support/text_run.h"

namespace longstride::testing::sample_test {
namespace {

std::string streamed(const std::vector<std::string>& pieces, bool terminal) {
  const TemporaryDirectory dir;
  std::FILE* file = std::fopen((dir / "out").c_str(), "wb");
  StreamedText text(file, terminal);
  for (const std::string& piece : pieces) text.add(piece);
  text.finish();
  std::fclose(file);
  return text_of(dir / "out");
}

// A character of several bytes appears whole, however it is cut.
TEST(StreamedText, ATerminalGetsWholeCharactersAndNoEscapes) {
  EXPECT_EQ(streamed({"a\xc3", "\xbc", "\xe2", "\x82", "\xac", "b"}, true),
            "a\xc3\xbc\xe2\x82\xac"
            "b\n");
  EXPECT_EQ(streamed({"\x1b[31m", "\xff", "x\n"}, true), "\\x1b[31m\\xffx\n");
  EXPECT_EQ(streamed({"a", "\xe2\x82"}, true), "a\\xe2\\x82\n");
  EXPECT_EQ(streamed({"\xc3", "(", "\x1b", "\xe2\x82"}, false), "\xc3(\x1b\xe2\x82");  // as they are
}

class EndlessSamples : public TextRun {};

TEST_F(EndlessSamples, LongerOnesBeginLikeShorterOnes) {
  const std::string shorter = run_well({"sample", "run", "--length", "64", "--quiet"}).out;
  const std::string longer = run_well({"sample", "run", "--length", "300", "--quiet"}).out;
  EXPECT_EQ(longer.size(), 300U);
  EXPECT_EQ(longer.substr(0, 64), shorter);
  EXPECT_EQ(text("run/samples/sample-000.txt"), longer);
  EXPECT_EQ(run_well({"sample", "run", "--length", "300", "--count", "2", "--quiet"}).out.substr(23, 300), longer);
}

TEST_F(EndlessSamples, ASignalKeepsWhatIsDrawn) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("OMP_NUM_THREADS", "1", 1);
    if (::chdir(dir.path().c_str()) == 0 && ::freopen("out", "w", stdout) && ::freopen("err", "w", stderr))
      ::execl(LONGSTRIDE_COMMAND, "longstride", "sample", "run", "--length", "2000000000", nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 6000 && text("out").size() < 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << text("err");
  EXPECT_GE(text("out").size(), 200U);
  EXPECT_EQ(text("run/samples/sample-000.txt"), text("out"));
  EXPECT_NE(text("err").find("stopped"), std::string::npos) << text("err");
}

TEST_F(EndlessSamples, SeveralPromptsOfAnyLengthHaveTheirSamples) {
  write_text(dir / "short.txt", "ab");
  write_text(dir / "long.txt", letters(90));
  const Arguments sample = {"sample",  "run", "--prompt", "short.txt", "--prompt", "long.txt",
                            "--count", "2",   "--length", "100",       "--output", "drawn"};
  run_well(sample);
  for (const auto& [file, prompt] :
       std::map<std::string, std::string>{{"000", "ab"}, {"001", "ab"}, {"002", letters(90)}, {"003", letters(90)}}) {
    const std::string drawn = text("drawn/sample-" + file + ".txt");
    EXPECT_EQ(drawn.size(), 100U);
    EXPECT_EQ(drawn.substr(0, prompt.size()), prompt) << file;
  }
  EXPECT_NE(text("drawn/sample-000.txt"), text("drawn/sample-001.txt"));
  expect_refused({"sample", "run", "--prompt", "short.txt", "--prompt", "text.bin"},
                 "text.bin: the prompt must be shorter than the 64 bytes of a sample; shorten it, or raise --length");
}

}  // namespace
}  // namespace longstride::testing::sample_test
