// `longstride prepare` and `longstride info` as a user runs them.
#include <algorithm>

#include "tests/datasets/command.h"
#include "tests/datasets/foreign.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

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

// `info` verifies without being asked. A split without a checksum is reported, and refused with --verify.
TEST(PrepareCommand, InfoAlwaysVerifies) {
  const Folder folder;
  put_file(folder / "raw", Bytes(4000, 'a'));
  call(fmt::format("prepare bytes --input {0}/raw --output {0}/x.h5 --split 3000,500,500", folder.path()));
  Bytes file = get_file(folder / "x.h5");
  const Bytes data(3000, 'a');
  std::fill_n(std::search(file.begin(), file.end(), data.begin(), data.end()), (256 << 10) + 4, 0);
  put_file(folder / "x.h5", file);
  const Outcome damaged = call(fmt::format("info {}/x.h5", folder.path()));
  EXPECT_EQ(damaged.code, 2);
  EXPECT_NE(damaged.text.find("the file is damaged"), std::string::npos) << damaged.text;
  { Foreign(folder / "y.h5").kind("bytes").splits({500}); }
  const Outcome unsure = call(fmt::format("info {}/y.h5", folder.path()));
  EXPECT_EQ(unsure.code, 0) << unsure.text;
  EXPECT_NE(unsure.text.find("train, valid, test: no checksum to verify"), std::string::npos) << unsure.text;
  EXPECT_EQ(call(fmt::format("info {}/y.h5 --verify", folder.path())).code, 2);
}

TEST(PrepareCommand, ShowsControlCharactersInNames) {
  const Folder folder;
  const std::string name = "a\x1b[2J\rb";
  put_file(folder / name, Bytes(4000, 'a'));
  call(fmt::format("prepare bytes --input '{0}/{1}' --output {0}/x.h5", folder.path(), name));
  const Outcome info = call(fmt::format("info {}/x.h5", folder.path()));
  EXPECT_NE(info.text.find("a\\x1b[2J\\rb"), std::string::npos) << info.text;
  EXPECT_EQ(info.text.find('\x1b'), std::string::npos);
}

TEST(PrepareCommand, WarnsOfEmptySplits) {
  const Folder folder;
  put_file(folder / "raw", Bytes(3, 'a'));
  const Outcome outcome = call(fmt::format("prepare bytes --input {0}/raw --output {0}/x.h5", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* split : {"valid", "test"})
    EXPECT_NE(outcome.text.find(fmt::format("warning: '{}' is empty", split)), std::string::npos) << outcome.text;
}

// A limit on the size of files imitates a full disk: one sentence, exit code 2, nothing left behind, and the old file
// unchanged.
TEST(PrepareCommand, PublishesNothingWhenTheDiskIsFull) {
  const Folder folder;
  const Bytes raw = random_bytes(1'300'000, 1), old = {1, 2, 3};
  put_file(folder / "raw", raw);
  put_file(folder / "x.h5", old);
  int refused = 0;
  for (const int limit : {0, 1, 100, 700, 1100, 1200, 1400, 1500, 1600, 1800, 2000}) {
    const Outcome outcome =
        shell(fmt::format("ulimit -f {} && '{}' prepare bytes --force --input {}/raw --output {}/x.h5", limit,
                          LONGSTRIDE_COMMAND, folder.path(), folder.path()));
    SCOPED_TRACE(fmt::format("{} KiB: {}", limit, outcome.text));
    EXPECT_FALSE(folder.holds_temporaries());
    if (outcome.code == 0) {
      Dataset::open(folder / "x.h5")->verify();
      continue;
    }
    ++refused;
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.text.find("File too large"), std::string::npos);
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1);
    EXPECT_EQ(get_file(folder / "x.h5"), old);
  }
  EXPECT_GE(refused, 6);
  EXPECT_LT(refused, 11);
}

// Exit code 2, one line that says what to do, and nothing left behind.
TEST(PrepareCommand, RefusesMistakesInOneSentence) {
  const Folder folder;
  put_file(folder / "raw", Bytes(4000, 'a'));
  put_file(folder / "there.h5", {1});
  const std::string in = "--input " + (folder / "raw"), out = " --output " + (folder / "x.h5");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"prepare", "bytes, tokens, cifar10, images, audio, listops or pathfinder"},
      {"prepare video " + in + out, "video"},
      {"prepare bytes" + out, "--input"},
      {"prepare bytes " + in, "--output"},
      {"prepare bytes " + in + out + " --seed 1", "--seed"},
      {"prepare bytes " + in + out + " --split 1,2", "adds up to 3"},
      {"prepare bytes " + in + out + " --split ''", "--split: '' is not a value"},
      {"prepare bytes " + in + " --output " + (folder / "there.h5"), "--force"},
      {"prepare bytes " + in + " --output " + (folder / std::string(300, 'n')),
       "cannot be written: File name too long"},
      {"prepare bytes " + in + " --output -", "-: names no file to write"},
      {"prepare bytes " + in + " --output " + folder.path(), "is a folder; give --output the name of a file in it"},
      {"prepare bytes " + in + " --force --output " + (folder / "new/"), "new/: is a folder; give --output the name"},
      {"prepare bytes --input <(echo a) " + out, "is a pipe or a device; give what it yields as standard input"},
      {"prepare cifar10 " + in + out + " --seed -1", "--seed"},
      {"prepare cifar10 " + in + out, "must have a multiple of 3,073"},
      {"prepare images " + in + out + " --grey maybe", "--grey"},
      {"prepare images " + in + out + " --size big", "--size"},
      {"prepare images " + in + out, "to take pictures from"},
      {"prepare audio" + out, "--input is needed"},
      {"prepare audio " + in + out + " --index 3", "--index is for --decode only"},
      {"prepare audio --decode " + (folder / "there.h5") + " --rate 12000 --output " + (folder / "y.wav"),
       "--rate cannot"},
      {"prepare audio --decode " + (folder / "there.h5") + " --output " + (folder / "y.wav"), "is not an HDF5 file"},
      {"info " + (folder / "there.h5"), "is not an HDF5 file"},
      {"info", "file"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = call(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << ": " << outcome.text;
    EXPECT_NE(outcome.text.find(message), std::string::npos) << arguments << ": " << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << arguments << ": " << outcome.text;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_EQ(get_file(folder / "there.h5"), Bytes{1});
  EXPECT_FALSE(folder.holds_temporaries());
}

// A picture of 201 MB in a process that may have 240: the advice is about pictures, not about training.
TEST(PrepareCommand, SaysWhatToDoWithoutMemory) {
  const std::string limited = fmt::format("ulimit -v 240000; OMP_NUM_THREADS=1 timeout 60 '{}' ", LONGSTRIDE_COMMAND);
  if (shell(limited + "--version").code != 0) GTEST_SKIP() << "this build needs more memory";
  const Folder folder;
  PngSettings palette;
  palette.type = PNG_COLOR_TYPE_PALETTE, palette.bits = 2;
  put_file(folder / "a.png", encode_png(8192, 8192, Bytes(8192 * 2048, 0), palette));
  const Outcome outcome =
      shell(limited + fmt::format("prepare images --input {0}/a.png --fit crop --output {0}/x.h5", folder.path()));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.text,
            "longstride: out of memory; up to eight pictures are decoded at once, each whole: scale the "
            "largest ones down, lower --size, or free memory\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

TEST(PrepareCommand, SaysWhichFileIsDecodedByDefault) {
  const std::string help = call("prepare audio --help").text;
  EXPECT_NE(help.find("the name of the split (train, the default)"), std::string::npos) << help;
  EXPECT_NE(help.find("--index INT=0"), std::string::npos) << help;
}

}  // namespace
}  // namespace longstride
