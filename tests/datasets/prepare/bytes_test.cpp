#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

TEST(PrepareBytes, DividesAFileInOrderAndKeepsEveryByte) {
  const Folder folder;
  const Bytes raw = random_bytes(9'000'001, 1);  // more than one buffer, not a multiple of a chunk
  put_file(folder / "raw", raw);
  prepare_bytes({{folder / "raw"}, "0.9,0.05,0.05"}, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().kind, DataKind::bytes);
  Bytes joined;
  for (const char* name : split_names) {
    const Bytes part = whole_split(*dataset, name);
    const auto set = dataset->split(name);
    ASSERT_EQ(set->sequences(), 1);
    ASSERT_EQ(set->length(0), static_cast<std::int64_t>(part.size()));
    Sha256 sha;
    sha.update(part.data(), part.size());
    EXPECT_EQ(dataset->stored_sha256(name), sha.hex());
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(joined == raw);
  EXPECT_EQ(whole_split(*dataset, "train").size(), 8'100'001u);
  const auto sources = dataset->sources();
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].name, folder / "raw");
  EXPECT_EQ(sources[0].bytes, 9'000'001);
  EXPECT_EQ(sources[0].sha256, sha256_of_file(folder / "raw"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(PrepareBytes, ReturnsTrainingRowsThatAreWindowsOfTheFile) {
  const Folder folder;
  const Bytes raw = random_bytes(30'000, 2);
  put_file(folder / "raw", raw);
  prepare_bytes({{folder / "raw"}, "20000,5000,5000"}, to(folder / "x.h5"));
  const DataConfig config = {DataKind::bytes, folder / "x.h5", 512, false};
  const auto source = open_training_data(*Dataset::open(config.path), config, 3, 1);
  Bytes rows(8 * 512);
  for (std::int64_t step = 0; step < 10; ++step) {
    source->read(step, 8, 0, {Tensor(rows.data(), Dtype::u8, {8, 512})});
    for (std::size_t r = 0; r < 8; ++r)
      EXPECT_NE(std::search(raw.begin(), raw.begin() + 20'000, rows.begin() + static_cast<std::ptrdiff_t>(r * 512),
                            rows.begin() + static_cast<std::ptrdiff_t>((r + 1) * 512)),
                raw.begin() + 20'000);
  }
}

TEST(PrepareBytes, AllowsEmptySplits) {
  const Folder folder;
  put_file(folder / "raw", random_bytes(1000, 3));
  prepare_bytes({{folder / "raw"}, "1000,0"}, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->split("train")->length(0), 1000);
  EXPECT_EQ(dataset->split("valid")->sequences(), 0);
  EXPECT_EQ(dataset->split("test")->sequences(), 0);
}

TEST(PrepareBytes, ReplacesAnOutputOnlyWhenAsked) {
  const Folder folder;
  put_file(folder / "raw", random_bytes(1000, 4));
  put_file(folder / "x.h5", {1, 2, 3});
  expect_user_error([&] { prepare_bytes({{folder / "raw"}}, to(folder / "x.h5")); }, "--force");
  EXPECT_EQ(get_file(folder / "x.h5"), (Bytes{1, 2, 3}));
  prepare_bytes({{folder / "raw"}}, to(folder / "x.h5", true));
  EXPECT_EQ(Dataset::open(folder / "x.h5")->split("train")->length(0), 900);
}

TEST(PrepareBytes, DoesNotReplaceItsInput) {
  const Folder folder;
  put_file(folder / "raw", random_bytes(1000, 4));
  expect_user_error([&] { prepare_bytes({{folder / "raw"}}, to(folder / "./raw", true)); }, "is also the input");
  EXPECT_EQ(get_file(folder / "raw").size(), 1000u);
}

TEST(PrepareBytes, RefusesWhatItCannotDivideAndLeavesNothing) {
  const Folder folder;
  put_file(folder / "raw", random_bytes(1000, 5));
  put_file(folder / "empty", {});
  const auto prepare = [&](const std::string& input, const std::string& split) {
    return [&folder, input, split] { prepare_bytes({{folder / input}, split}, to(folder / "x.h5")); };
  };
  expect_user_error(prepare("absent", "0.9,0.05,0.05"), "absent");
  expect_user_error(prepare("empty", "0.9,0.05,0.05"), "is empty");
  expect_user_error(prepare("raw", "900,50,51"), "adds up to 1,001");
  expect_user_error(prepare("raw", "enwik8"), "divides exactly 100,000,000");
  expect_user_error(prepare("raw", "0.9,0.05"), "add up to 0.95");
  expect_user_error(prepare("raw", "1000"), "two or three numbers");
  expect_user_error(prepare("raw", "900,50,50,"), "two or three numbers");
  expect_user_error(prepare("raw", "900,x,100"), "'x' is not a number");
  expect_user_error(prepare("raw", "0.9,nan,0.1"), "'nan' is not a number");
  expect_user_error(prepare("raw", "0.9,-0.1,0.2"), "-0.1 is negative");
  expect_user_error(prepare("raw", "1100,-50,-50"), "negative");
  expect_user_error(prepare("raw", "0.9996,0.0002,0.0002"), "leaves none for 'valid'");
  expect_user_error([&] { prepare_bytes({{folder / "raw"}}, to(folder / "raw/x.h5")); }, "is not a folder");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

// A model of a compressor's codes is not a model of text, and files that only begin like packed ones are not unpacked.
TEST(PrepareBytes, RefusesWhatItCannotUnpackUnlessAsked) {
  const Folder folder;
  using namespace std::string_literals;
  for (const auto& [start, message] : {std::pair{"\x1f\x8b\x08"s, "is a damaged gzip file"},
                                       {"7z\xbc\xaf\x27\x1c"s, "is compressed (7z)"},
                                       {"\x04\x22\x4d\x18"s, "is compressed (lz4)"},
                                       {"]\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0"s, "is compressed (lzma)"},
                                       {"]\0\0\x10\0\xff\xff\xff\xff\xff\xff\xff\xff\0"s, "is compressed (lzma)"},
                                       {"]\0\0\0\x03\x10\x27\0\0\0\0\0\0\0"s, "is compressed (lzma)"},
                                       {"LZIP\1"s, "is compressed (lzip)"},
                                       {"Rar!\x1a\7\0"s, "is compressed (rar)"},
                                       {"\x1f\x9d\x90"s, "is compressed (compress)"}}) {
    Bytes file(start.begin(), start.end());
    file.resize(1000, 'x');
    put_file(folder / "raw", file);
    expect_user_error([&] { prepare_bytes({{folder / "raw"}}, to(folder / "x.h5")); }, message);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    PrepareBytesConfig config;
    config.inputs = {folder / "raw"};
    config.raw = true;
    prepare_bytes(config, to(folder / "x.h5"));
    EXPECT_EQ(Dataset::open(folder / "x.h5")->split("train")->length(0), 900) << message;
    std::filesystem::remove(folder / "x.h5");
  }
}

TEST(PrepareBytes, TakesBytesThatOnlyResembleLzma) {
  const Folder folder;
  using namespace std::string_literals;
  for (const std::string& start : {"]\0\0\x11\0\xff\xff\xff\xff\xff\xff\xff\xff\0"s,  // no size of a dictionary
                                   "]\0\0\x10\0\xff\xff\xff\xff\xff\xff\xff\x01\0"s,  // too much content
                                   "]\0\0\0\0\0\0\0\0\0\0\0\0\0"s, "], [0.25, 0.5], [1, 2]"s}) {
    put_file(folder / "raw", Bytes(start.begin(), start.end()));
    prepare_bytes({{folder / "raw"}}, to(folder / "x.h5", true));
    EXPECT_GT(Dataset::open(folder / "x.h5")->split("train")->length(0), 0);
  }
}

TEST(PrepareBytes, LeavesNothingWhenStopped) {
  const Folder folder;
  put_file(folder / "raw", random_bytes(6'000'000, 6));
  PrepareOutput output = to(folder / "x.h5");
  output.progress = [](std::int64_t done, std::int64_t) {
    if (done > 5'000'000) throw user_error("stopped by the user; nothing was written");
  };
  expect_user_error([&] { prepare_bytes({{folder / "raw"}}, output); }, "stopped");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(SplitRule, DividesEnwik8AsPublished) {
  EXPECT_EQ(SplitRule::parse("enwik8").divide(100'000'000, "x", "bytes"),
            (SplitCounts{90'000'000, 5'000'000, 5'000'000}));
  EXPECT_EQ(SplitRule::parse("0.9,0.05,0.05").divide(100'000'000, "x", "bytes"),
            (SplitCounts{90'000'000, 5'000'000, 5'000'000}));
  EXPECT_EQ(SplitRule::parse("0.5,0.5").divide(3, "x", "bytes"), (SplitCounts{2, 1, 0}));
}

TEST(SplitRule, TakesCountsAsRecipesWriteThemAndSpaces) {
  EXPECT_EQ(SplitRule::parse("9e6, 5e5,500000").divide(10'000'000, "x", "bytes"),
            (SplitCounts{9'000'000, 500'000, 500'000}));
  EXPECT_EQ(SplitRule::parse(" 0.5 ,0.25, 0.25 ").divide(4, "x", "bytes"), (SplitCounts{2, 1, 1}));
  for (const char* wrong : {"5e-1,5e-1", "1e300,0", "1e,0", "0x1e1,0", "1 0,0", "inf,0", " ,0"})
    expect_user_error([&] { SplitRule::parse(wrong); }, "is not a number");
  expect_user_error([&] { SplitRule::parse("1,0,0").divide(5, "x", "bytes"); },
                    "adds up to 1; make the counts add up or use fractions, which have a point: 1.0,0,0");
}

TEST(SplitRule, GivesNoMoreThanThereIs) {
  const SplitRule rule = SplitRule::parse("0.5,0.5000005,0.0000001");  // more than 1, but within the tolerance
  EXPECT_EQ(rule.divide(10'000'000, "x", "bytes"), (SplitCounts{5'000'000, 5'000'000, 0}));
  EXPECT_EQ(SplitRule::parse("1.0000005,0.0").divide(10'000'000, "x", "bytes"), (SplitCounts{10'000'000, 0, 0}));
}

}  // namespace
}  // namespace longstride
