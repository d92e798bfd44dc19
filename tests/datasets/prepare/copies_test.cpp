// Files with the same content under two names never are in two splits.
#include "datasets/prepare/copies.h"

#include <map>

#include "tests/datasets/command.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/datasets/support.h"

namespace longstride::copies_test {
namespace {

Bytes words(std::size_t count, std::uint64_t seed) {
  Bytes out = random_bytes(count, seed);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>('a' + byte % 26);
  return out;
}

std::map<std::string, Bytes> splits_of(const std::string& path) {
  std::map<std::string, Bytes> out;
  const auto dataset = Dataset::open(path);
  for (const char* name : split_names) out[name] = whole_split(*dataset, name);
  return out;
}

bool holds(const Bytes& whole, const Bytes& part) {
  return std::search(whole.begin(), whole.end(), part.begin(), part.end()) != whole.end();
}

struct Notes {
  std::vector<std::string> notes, warnings;
  PrepareOutput to(const std::string& path) {
    PrepareOutput output = longstride::to(path, true);
    output.note = [this](const std::string& sentence) { notes.push_back(sentence); };
    output.warn = [this](const std::string& sentence) { warnings.push_back(sentence); };
    return output;
  }
};

TEST(CopiesOfText, GoWhereTheFirstGoes) {
  const Folder folder;
  for (int i = 0; i < 10; ++i)
    put_file(folder / fmt::format("in/{}.txt", i), words(1000, static_cast<std::uint64_t>(i)));
  put_file(folder / "in/9.txt", words(1000, 0));  // a copy of 0.txt, and so from train in test
  put_file(folder / "in/b.txt", words(1000, 0));
  Notes said;
  prepare_bytes({{folder / "in"}, "0.7,0.2,0.1"}, said.to(folder / "x.h5"));
  auto splits = splits_of(folder / "x.h5");
  EXPECT_EQ(splits["train"].size() + splits["valid"].size() + splits["test"].size(), 11'000u);
  EXPECT_EQ(splits["train"].size(), 7700u);
  EXPECT_FALSE(holds(splits["test"], words(50, 0)));
  ASSERT_EQ(said.notes.size(), 1u);
  EXPECT_NE(said.notes[0].find("copies: 2 of 11 files, as"), std::string::npos) << said.notes[0];
  EXPECT_NE(Dataset::open(folder / "x.h5")->info().split.find("; copies: 2, in the split of the first"),
            std::string::npos);
}

// The part of a file that is in train is in train twice, and the rest in valid twice.
TEST(CopiesOfText, AreCutWhereTheFirstIsCut) {
  const Folder folder;
  const Bytes text = words(1000, 1);
  put_file(folder / "a", text);
  put_file(folder / "b", text);
  prepare_bytes({{folder / "a", folder / "b"}, "0.5,0.3,0.2"}, to(folder / "x.h5"));
  auto splits = splits_of(folder / "x.h5");
  const Bytes half(text.begin(), text.begin() + 500), next(text.begin() + 500, text.begin() + 800);
  EXPECT_EQ(splits["train"].size(), 1000u);
  EXPECT_TRUE(std::equal(half.begin(), half.end(), splits["train"].begin() + 500));
  EXPECT_TRUE(std::equal(next.begin(), next.end(), splits["valid"].begin() + 300));
  EXPECT_EQ(splits["test"].size(), 400u);
}

TEST(CopiesOfText, MayBeLeftOutOrRefused) {
  const Folder folder;
  put_file(folder / "a", words(100, 1));
  put_file(folder / "b", words(100, 2));
  put_file(folder / "c", words(100, 1));
  PrepareBytesConfig config = {{folder / "a", folder / "b", folder / "c"}, "150,50,0"};
  config.duplicates = Duplicates::drop;
  prepare_bytes(config, to(folder / "x.h5"));
  EXPECT_EQ(splits_of(folder / "x.h5")["valid"], [] {
    const Bytes b = words(100, 2);
    return Bytes(b.begin() + 50, b.end());
  }());
  config.duplicates = Duplicates::refuse;
  expect_user_error([&] { prepare_bytes(config, to(folder / "x.h5", true)); }, "c is a copy of ");
  config.duplicates = Duplicates::keep;
  config.split = "101,199,0";
  expect_user_error([&] { prepare_bytes(config, to(folder / "x.h5", true)); }, "give 102,198,0, fractions");
  config.split = "102,198,0";
  prepare_bytes(config, to(folder / "x.h5", true));
}

TEST(CopiesOfText, AreSeenInCompressedFilesAndNotAmongFilesOfOneSize) {
  const Folder folder;
  put_file(folder / "a", words(9000, 1));
  put_file(folder / "b", words(9000, 2));
  Bytes late = words(9000, 1);
  late.back() = '!';
  put_file(folder / "c", late);
  prepare_bytes({{folder / "a", folder / "b", folder / "c"}, "", false, false, Duplicates::refuse},
                to(folder / "x.h5", true));
  EXPECT_EQ(shell(fmt::format("cd '{}' && cp a d && gzip d", folder.path())).code, 0);
  expect_user_error(
      [&] {
        prepare_bytes({{folder / "a", folder / "b", folder / "d.gz"}, "", false, false, Duplicates::refuse},
                      to(folder / "x.h5", true));
      },
      "d.gz is a copy of");
}

Bytes png(std::uint64_t seed) { return encode_png(side, side, random_bytes(picture, seed), {}); }

TEST(CopiesOfPictures, GoWhereTheFirstGoes) {
  const Folder folder;
  for (std::uint64_t i = 0; i < 12; ++i) {
    put_file(folder / fmt::format("p/{:02}.png", i), png(i));
    put_file(folder / fmt::format("p/copy-{:02}.png", i), png(i));
  }
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    PrepareImagesConfig config = config_of({folder / "p"});
    config.split = "0.5,0.25,0.25";
    config.seed = seed;
    Notes said;
    prepare_images(config, said.to(folder / "x.h5"));
    auto splits = splits_of(folder / "x.h5");
    EXPECT_EQ(splits["train"].size(), 12 * picture);
    for (const char* other : {"valid", "test"})
      for (std::size_t i = 0; i < splits[other].size() / picture; ++i)
        EXPECT_FALSE(holds(splits["train"], slice(splits[other], i)));
    ASSERT_FALSE(said.notes.empty());
    EXPECT_NE(said.notes.back().find("copies: 12 of 24 pictures"), std::string::npos) << said.notes.back();
    config.duplicates = Duplicates::drop;
    prepare_images(config, to(folder / "x.h5", true));
    EXPECT_EQ(splits_of(folder / "x.h5")["train"].size(), 6 * picture);
    config.split = "13,6,5", config.duplicates = Duplicates::keep;
    expect_user_error([&] { prepare_images(config, to(folder / "x.h5", true)); }, "divides copies from each other");
  }
}

TEST(CopiesOfPictures, InAnArrayGoWithItsPictures) {
  const Folder folder;
  const Bytes pixels = random_bytes(20 * picture, 5);
  put_file(folder / "a.npy", make_npy("(20, 8, 8, 3)", pixels));
  put_file(folder / "b.npy", make_npy("(20, 8, 8, 3)", pixels));
  PrepareImagesConfig config = config_of({folder / "a.npy", folder / "b.npy"});
  config.split = "0.5,0.25,0.25";
  prepare_images(config, to(folder / "x.h5"));
  auto splits = splits_of(folder / "x.h5");
  EXPECT_EQ(splits["train"].size(), 20 * picture);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_FALSE(holds(splits["train"], slice(splits["test"], i)));
}

// Splits that are given are left as they are.
TEST(CopiesOfPictures, InSplitsThatAreGivenAreSaid) {
  const Folder folder;
  put_file(folder / "t/a.png", png(1));
  put_file(folder / "t/b.png", png(2));
  put_file(folder / "v/c.png", png(1));
  PrepareImagesConfig config = config_of({folder / "t"});
  config.split = "";
  config.valid_inputs = {folder / "v"};
  Notes said;
  prepare_images(config, said.to(folder / "x.h5"));
  EXPECT_EQ(splits_of(folder / "x.h5")["valid"].size(), picture);
  ASSERT_EQ(said.warnings.size(), 1u);
  EXPECT_NE(said.warnings[0].find("are given: 1 of 3 pictures, as"), std::string::npos);
  config.duplicates = Duplicates::drop;
  prepare_images(config, to(folder / "x.h5", true));
  EXPECT_EQ(splits_of(folder / "x.h5")["valid"].size(), 0u);
}

}  // namespace
}  // namespace longstride::copies_test
