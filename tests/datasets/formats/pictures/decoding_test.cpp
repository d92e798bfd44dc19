// Pictures decoded on several threads: the same as on one, in the same order, with the same failure.
#include "datasets/formats/pictures/picture_decoding.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/pictures/golden.h"
#include "tests/datasets/formats/png_encoder.h"

namespace longstride {
namespace {

constexpr std::size_t count = 600;  // several batches of 64 per thread

// Pictures of many sizes, so that threads do not end in the order in which they begin.
std::vector<Bytes> files_of_many_sizes() {
  std::vector<Bytes> files;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rows = 8 + i * 37 % 90, columns = 8 + i * 53 % 70;
    files.push_back(encode_png(rows, columns, random_bytes(rows * columns * 3, i + 1), {}));
  }
  return files;
}

// All pixels, one picture after another, and the message of the failure, if there is one.
std::pair<Bytes, std::string> decoded(const std::vector<Bytes>& files, std::size_t threads) {
  const PictureRules rules = rules_of(side, PictureFit::crop);
  Bytes all;
  const PictureDecoding::Sink sink = [&](const std::uint8_t* pixels) {
    all.insert(all.end(), pixels, pixels + picture);
  };
  PictureDecoding decoding(rules, sink, threads);
  try {
    for (std::size_t i = 0; i < files.size(); ++i) decoding.give(files[i], fmt::format("{}.png", i));
    decoding.finish("here");
  } catch (const UserError& error) {
    return {all, error.what()};
  }
  return {all, ""};
}

TEST(PictureDecoding, KeepsTheOrderOnAnyNumberOfThreads) {
  const std::vector<Bytes> files = files_of_many_sizes();
  Bytes wanted;
  for (const Bytes& file : files) {
    const Bytes pixels = fit_picture(decode(file), rules_of(side, PictureFit::crop), "a");
    wanted.insert(wanted.end(), pixels.begin(), pixels.end());
  }
  for (const std::size_t threads : {0, 1, 2, 3, 8}) {
    const auto [pixels, message] = decoded(files, threads);
    EXPECT_EQ(message, "") << threads;
    EXPECT_TRUE(pixels == wanted) << threads;
  }
}

TEST(PictureDecoding, NamesTheFirstPictureThatDoesNotFit) {
  std::vector<Bytes> files = files_of_many_sizes();
  for (const std::size_t bad : {599, 450, 449, 448, 7, 0}) {
    files[bad].resize(files[bad].size() / 2);
    for (const std::size_t threads : {1, 2, 8}) {
      const std::string message = decoded(files, threads).second;
      EXPECT_TRUE(message.starts_with(fmt::format("{}.png: ", bad))) << threads << ": " << message;
    }
  }
}

}  // namespace
}  // namespace longstride
