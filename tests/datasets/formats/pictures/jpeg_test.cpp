#include "datasets/formats/pictures/jpeg.h"

#include <algorithm>

#include "tests/datasets/formats/pictures/golden.h"
#include "tests/datasets/formats/pictures/jpeg_encoder.h"
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

// Files store what the inks leave of the paper, so 255 is none. The values are those of Pillow's convert("RGB").
TEST(Jpeg, ConvertsCmykAsPillowDoes) {
  for (const bool ycck : {false, true}) {
    const Bytes inks = {255, 200, 0, 255, 100, 100, 100, 128, 0, 0, 0, 0, 255, 255, 255, 255};
    const Bytes wanted = {255, 200, 0, 50, 50, 50, 0, 0, 0, 255, 255, 255};
    for (std::size_t i = 0; i < 4; ++i) {
      Bytes pixels;
      for (int n = 0; n < 64; ++n)
        for (std::size_t c = 0; c < 4; ++c) pixels.push_back(inks[4 * i + c]);
      JpegSettings settings = {4, 100, false, {}};
      settings.ycck = ycck;
      const Picture picture = decode(encode_jpeg(8, 8, pixels, settings));
      EXPECT_TRUE(picture.cmyk);
      ASSERT_EQ(picture.channels, 3);
      ASSERT_EQ(picture.pixels.size(), 192u);
      for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(picture.pixels[90 + c], wanted[3 * i + c], 2) << i << ycck;
    }
  }
}

// A progressive file lacks its last scan. Of others the end mark alone may be missing, and the pixels are the same.
TEST(Jpeg, RefusesEveryTruncationThatLosesPixels) {
  const Bytes pixels = random_bytes(17 * 19 * 3, 1);
  expect_truncations_refused(encode_jpeg(17, 19, pixels, {3, 50, true, {}}));
  const Bytes file = encode_jpeg(17, 19, pixels, {3, 50, false, {}});
  const Bytes whole = decode(file).pixels;
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    if (size + 3 < file.size()) expect_user_error([&] { decode(cut); }, "a: ");
    if (size + 3 <= file.size()) continue;
    EXPECT_EQ(decode(cut).pixels, whole) << file.size() - size;
  }
}

TEST(Jpeg, SurvivesDamage) {
  expect_damage_survived(encode_jpeg(17, 19, random_bytes(17 * 19 * 3, 2), {3, 50, true, exif(6, true)}), 101);
}

// Some cameras leave bytes between the segments, and nothing of the picture is lost.
TEST(Jpeg, AcceptsBytesBetweenSegments) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  const Bytes pixels = decode(file).pixels;
  file.insert(file.end() - 2, {0, 0, 0});
  EXPECT_EQ(decode(file).pixels, pixels);
}

// As some phones of Samsung's write: the numbers that only progressive files use are 0 instead of 0, 63 and 0.
TEST(Jpeg, AcceptsAScanHeaderOfZeros) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  const Bytes pixels = decode(file).pixels, scan = {0xFF, 0xDA, 0, 12, 3};
  const auto at = std::search(file.begin(), file.end(), scan.begin(), scan.end());
  ASSERT_NE(at, file.end());
  ASSERT_EQ(at[12], 63);
  at[12] = 0;
  EXPECT_EQ(decode(file).pixels, pixels);
}

// A changed bit may make a scan end early, and the rest of it is then skipped like bytes between segments.
TEST(Jpeg, RefusesTheRestOfADamagedScan) {
  const std::size_t size = 64;
  const Bytes file = encode_jpeg(size, size, random_bytes(size * size * 3, 4), {3, 70, false, {}});
  const Bytes scan = {0xFF, 0xDA};
  const auto begin =
      static_cast<std::size_t>(std::search(file.begin(), file.end(), scan.begin(), scan.end()) - file.begin()) + 14;
  std::size_t rest = 0;
  for (std::size_t at = begin; at + 40 < file.size(); at += 7) {
    Bytes changed = file;
    changed[at] ^= 0x10;
    if (file[at] == 0xFF || changed[at] == 0xFF || file[at - 1] == 0xFF) continue;
    try {
      decode(changed);
    } catch (const UserError& error) {
      rest += std::string(error.what()).find("extraneous bytes before marker") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(rest, 10u);
}

TEST(Jpeg, CallsALimitNoDamage) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  const Bytes frame = {0xFF, 0xC0};
  std::search(file.begin(), file.end(), frame.begin(), frame.end())[1] = 0xC3;
  expect_user_error([&] { decode(file); },
                    "a: is of a kind of JPEG that cannot be read here (Unsupported JPEG process");
}

// The frame's header: marker, length, precision, rows and columns.
void set_size(Bytes& file, std::uint8_t kind, std::uint16_t rows, std::uint16_t columns) {
  const Bytes frame = {0xFF, kind};
  const auto at = std::search(file.begin(), file.end(), frame.begin(), frame.end());
  ASSERT_NE(at, file.end());
  at[5] = static_cast<std::uint8_t>(rows >> 8), at[6] = static_cast<std::uint8_t>(rows & 255);
  at[7] = static_cast<std::uint8_t>(columns >> 8), at[8] = static_cast<std::uint8_t>(columns & 255);
}

TEST(Jpeg, RefusesHugeSizesBeforeItAllocates) {
  Bytes file = encode_jpeg(16, 16, waves(16, 16, 3), {});
  set_size(file, 0xC0, 65000, 65000);
  const std::size_t before = peak_bytes();
  expect_user_error([&] { decode(file); }, "a: has more than 67108864 pixels; scale it down first");
  EXPECT_LT(peak_bytes() - before, std::size_t{50} << 20);
}

// A grey picture whose first scan, of the mean of each block, is repeated. It claims to be exact, so that it may be.
Bytes with_scans(std::size_t rows, std::size_t columns, int count) {
  Bytes file = encode_jpeg(rows, columns, Bytes(rows * columns, 100), {1, 90, true, {}});
  const auto first = [&](Bytes::iterator from, const Bytes& marker) {
    return std::search(from, file.end(), marker.begin(), marker.end());
  };
  constexpr std::ptrdiff_t header = 10, precision = 9;
  const auto begin = first(file.begin(), {0xFF, 0xDA});
  Bytes scan(begin, first(begin + header, {0xFF}));
  scan[precision] = 0;
  file.resize(file.size() - 2);
  for (int i = 0; i < count; ++i) file.insert(file.end(), scan.begin(), scan.end());
  file.insert(file.end(), {0xFF, 0xD9});
  return file;
}

// A scan of the whole picture costs a few bytes, so a file of 100 KB could take hours.
TEST(Jpeg, RefusesEndlessScans) {
  expect_user_error([&] { decode(with_scans(8, 8, 600)); },
                    "a: has 606 scans of 8 x 8 pixels, which would take long; save it with at most 500");
  decode(with_scans(8, 8, 400));
}

// 500 scans of 64 Mi pixels take 12 s. Few of them take as long as many of a small picture.
TEST(Jpeg, BoundsTheProductOfScansAndPixels) {
  Bytes file = with_scans(8, 8, 200);
  set_size(file, 0xC2, 2048, 4096);
  expect_user_error([&] { decode(file); },
                    "a: has 206 scans of 4096 x 2048 pixels, which would take long; save it with at most 128");
}

}  // namespace
}  // namespace longstride
