#include "datasets/formats/pictures/jpeg.h"

#include <algorithm>

#include "tests/datasets/pictures/golden.h"
#include "tests/datasets/pictures/jpeg_encoder.h"
#include "tests/support/peak_memory.h"

namespace longstride {
namespace {

// Smooth enough that quality 90 keeps it.
Bytes waves(std::size_t rows, std::size_t columns, std::size_t channels) {
  Bytes out(rows * columns * channels);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t pixel = i / channels;
    out[i] = static_cast<std::uint8_t>(40 + 5 * (pixel % columns) + 2 * (pixel / columns) + 20 * (i % channels));
  }
  return out;
}

TEST(Jpeg, IsPillowsToOneOf255) {
  for (const char* name : {"turned.jpg", "wide.jpg", "grey.jpg"}) expect_golden(name);
}

TEST(Jpeg, KeepsSizeColoursAndOrientation) {
  for (const int channels : {1, 3})
    for (const bool progressive : {false, true}) {
      const Bytes pixels = waves(20, 30, static_cast<std::size_t>(channels));
      const Picture picture = decode(encode_jpeg(20, 30, pixels, {channels, 90, progressive, exif(8, true)}));
      EXPECT_EQ(picture.rows, 20);
      EXPECT_EQ(picture.columns, 30);
      EXPECT_EQ(picture.channels, channels);
      EXPECT_EQ(picture.orientation, 8);
      ASSERT_EQ(picture.pixels.size(), pixels.size());
      double sum = 0;
      for (std::size_t i = 0; i < pixels.size(); ++i) sum += std::abs(int{picture.pixels[i]} - int{pixels[i]});
      EXPECT_LT(sum / static_cast<double>(pixels.size()), 4) << channels;
    }
}

TEST(Jpeg, RefusesCmyk) {
  const Bytes file = encode_jpeg(8, 8, Bytes(256, 100), {4, 90, false, {}});
  expect_user_error([&] { decode(file); }, "a: has 4 channels, as CMYK for printing has; convert it to RGB first");
}

TEST(Jpeg, RefusesEveryTruncation) {
  for (const bool progressive : {false, true})
    expect_truncations_refused(encode_jpeg(17, 19, random_bytes(17 * 19 * 3, 1), {3, 50, progressive, {}}));
}

// Damaged anywhere: one sentence, or a picture of the stated size.
TEST(Jpeg, SurvivesDamage) {
  const Bytes whole = encode_jpeg(17, 19, random_bytes(17 * 19 * 3, 2), {3, 50, true, exif(6, true)});
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const std::uint8_t value : {0x00, 0xFF, 0x5A}) {
      Bytes file = whole;
      file[at] = value;
      try {
        const Picture picture = decode(file);
        EXPECT_EQ(picture.pixels.size(), static_cast<std::size_t>(picture.rows * picture.columns * picture.channels));
      } catch (const UserError& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).find("a: "), 0u) << error.what();
      }
    }
  EXPECT_GT(refused, 100);
}

// Some cameras leave bytes between the segments, and nothing of the picture is lost.
TEST(Jpeg, AcceptsBytesBetweenSegments) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  const Bytes pixels = decode(file).pixels;
  file.insert(file.end() - 2, {0, 0, 0});
  EXPECT_EQ(decode(file).pixels, pixels);
}

// The frame's header: marker, length, precision, rows and columns.
void set_size(Bytes& file, std::uint16_t rows, std::uint16_t columns) {
  const Bytes frame = {0xFF, 0xC0, 0x00, 0x11, 8};
  const auto at = std::search(file.begin(), file.end(), frame.begin(), frame.end());
  ASSERT_NE(at, file.end());
  at[5] = static_cast<std::uint8_t>(rows >> 8), at[6] = static_cast<std::uint8_t>(rows & 255);
  at[7] = static_cast<std::uint8_t>(columns >> 8), at[8] = static_cast<std::uint8_t>(columns & 255);
}

TEST(Jpeg, RefusesHugeSizesBeforeItAllocates) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  set_size(file, 65000, 65000);
  const std::size_t before = peak_bytes();
  expect_user_error([&] { decode(file); }, "a: has more than 67108864 pixels; scale it down first");
  EXPECT_LT(peak_bytes() - before, std::size_t{50} << 20);
}

// A scan of the whole picture costs a few bytes, so a file of 100 KB could take hours.
TEST(Jpeg, RefusesEndlessScans) {
  Bytes file = encode_jpeg(8, 8, waves(8, 8, 1), {1, 90, true, {}});
  const auto first = [&](Bytes::iterator from, const Bytes& marker) {
    return std::search(from, file.end(), marker.begin(), marker.end());
  };
  // The first scan, of the mean of each block, claims to be exact, so that it may be repeated.
  constexpr std::ptrdiff_t header = 10, precision = 9;
  const auto begin = first(file.begin(), {0xFF, 0xDA});
  Bytes scan(begin, first(begin + header, {0xFF}));
  scan[precision] = 0;
  file.resize(file.size() - 2);
  for (int i = 0; i < 600; ++i) file.insert(file.end(), scan.begin(), scan.end());
  file.insert(file.end(), {0xFF, 0xD9});
  expect_user_error([&] { decode(file); }, "a: is a damaged or unusual JPEG file (it has more than 500 scans)");
}

}  // namespace
}  // namespace longstride
