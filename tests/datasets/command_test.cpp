// `longstride prepare` and `longstride info` as a user calls them.
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "tests/datasets/support.h"

namespace longstride {
namespace {

struct Outcome {
  int code = -1;
  std::string text;  // standard output and standard error
};

Outcome call(const std::string& arguments) {
  Outcome outcome;
  const std::string line = fmt::format("'{}' {} 2>&1 < /dev/null", LONGSTRIDE_COMMAND, arguments);
  FILE* pipe = popen(line.c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.text.append(buffer.data(), got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(PrepareCommand, PreparesAndInfoVerifies) {
  const Folder folder;
  put_file(folder / "raw", Bytes(4000, 'a'));
  const Outcome prepared =
      call(fmt::format("prepare bytes --input {0}/raw --output {0}/x.h5 --split 3000,500,500", folder.path()));
  EXPECT_EQ(prepared.code, 0) << prepared.text;
  EXPECT_NE(prepared.text.find("3,000 bytes"), std::string::npos) << prepared.text;
  const Outcome info = call(fmt::format("info {}/x.h5 --verify", folder.path()));
  EXPECT_EQ(info.code, 0) << info.text;
  EXPECT_NE(info.text.find("entropy 0.0000 bits per byte"), std::string::npos) << info.text;
  EXPECT_NE(info.text.find("verified"), std::string::npos) << info.text;
}

// Exit code 2, one line that says what to do, and nothing left behind.
TEST(PrepareCommand, RefusesMistakesInOneSentence) {
  const Folder folder;
  put_file(folder / "raw", Bytes(4000, 'a'));
  put_file(folder / "there.h5", {1});
  const std::string in = "--input " + (folder / "raw"), out = " --output " + (folder / "x.h5");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"prepare", "bytes, cifar10, images or audio"},
      {"prepare video " + in + out, "video"},
      {"prepare bytes" + out, "--input"},
      {"prepare bytes " + in, "--output"},
      {"prepare bytes " + in + out + " --seed 1", "--seed"},
      {"prepare bytes " + in + out + " --split 1,2", "adds up to 3"},
      {"prepare bytes " + in + " --output " + (folder / "there.h5"), "--force"},
      {"prepare cifar10 " + in + out + " --seed -1", "--seed"},
      {"prepare cifar10 " + in + out, "no whole number of records"},
      {"prepare images " + in + out + " --grey maybe", "--grey"},
      {"prepare images " + in + out + " --size big", "--size"},
      {"prepare images " + in + out, "which pictures are taken from"},
      {"prepare audio" + out, "--input is needed"},
      {"prepare audio " + in + out + " --index 3", "--index is for --decode only"},
      {"prepare audio --decode " + (folder / "there.h5") + " --rate 12000 --output " + (folder / "y.wav"),
       "--rate cannot"},
      {"prepare audio --decode " + (folder / "there.h5") + " --output " + (folder / "y.wav"), "is no HDF5 file"},
      {"info " + (folder / "there.h5"), "is no HDF5 file"},
      {"info", "file"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = call(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << ": " << outcome.text;
    EXPECT_NE(outcome.text.find(message), std::string::npos) << arguments << ": " << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << arguments << ": " << outcome.text;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_EQ(get_file(folder / "there.h5"), Bytes{1});
  EXPECT_FALSE(folder.holds_temporaries());
}

}  // namespace
}  // namespace longstride
