#include <png.h>

#include <algorithm>
#include <cmath>

#include "datasets/formats/mu_law.h"
#include "datasets/formats/png.h"
#include "datasets/formats/wav.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/datasets/support.h"
#include "tests/support/peak_memory.h"

namespace longstride {
namespace {

Picture read(const Bytes& file) { return read_png(file.data(), file.size(), "a.png"); }

TEST(Png, ReadsBackWhatItWrote) {
  const Folder folder;
  for (std::int64_t channels : {1, 3}) {
    const Bytes pixels = random_bytes(static_cast<std::size_t>(5 * 7 * channels), 1);
    write_png(folder / "a.png", 5, 7, channels, pixels.data());
    const Picture picture = read(get_file(folder / "a.png"));
    EXPECT_EQ(picture.rows, 5);
    EXPECT_EQ(picture.columns, 7);
    EXPECT_EQ(picture.channels, channels);
    EXPECT_EQ(picture.pixels, pixels);
  }
  EXPECT_FALSE(folder.holds_temporaries());
}

// A gamma chunk must not change the pixels: they are data, not light.
TEST(Png, KeepsPixelValuesWhateverTheGamma) {
  const Bytes pixels = random_bytes(48, 2);
  PngSettings settings;
  settings.gamma = 1.0;
  EXPECT_EQ(read(encode_png(4, 4, pixels, settings)).pixels, pixels);
}

TEST(Png, ReadsInterlacedPictures) {
  const Bytes pixels = random_bytes(13 * 11 * 3, 3);
  PngSettings settings;
  settings.interlaced = true;
  EXPECT_EQ(read(encode_png(13, 11, pixels, settings)).pixels, pixels);
}

TEST(Png, ExpandsPalettesAndFewBits) {
  PngSettings palette;
  palette.type = PNG_COLOR_TYPE_PALETTE;
  const Picture coloured = read(encode_png(1, 2, {1, 0}, palette));  // entry k is (k, 2k + 1, 255 - k)
  EXPECT_EQ(coloured.channels, 3);
  EXPECT_EQ(coloured.pixels, (Bytes{1, 3, 254, 0, 1, 255}));
  PngSettings grey;
  grey.type = PNG_COLOR_TYPE_GRAY;
  grey.bits = 4;
  EXPECT_EQ(read(encode_png(1, 2, {0x3F}, grey)).pixels, (Bytes{0x33, 0xFF}));
}

TEST(Png, KeepsAlpha) {
  for (const auto& [type, channels] : {std::pair{PNG_COLOR_TYPE_RGB_ALPHA, 4}, {PNG_COLOR_TYPE_GRAY_ALPHA, 2}}) {
    PngSettings settings;
    settings.type = type;
    const Bytes pixels = random_bytes(static_cast<std::size_t>(6 * channels), 8);
    const Picture picture = read(encode_png(2, 3, pixels, settings));
    EXPECT_EQ(picture.channels, channels);
    EXPECT_EQ(picture.pixels, pixels);
  }
}

TEST(Png, RoundsSixteenBitsToEight) {
  for (const auto& [type, channels] : {std::pair{PNG_COLOR_TYPE_RGB, 3},
                                       {PNG_COLOR_TYPE_GRAY, 1},
                                       {PNG_COLOR_TYPE_RGB_ALPHA, 4},
                                       {PNG_COLOR_TYPE_GRAY_ALPHA, 2}}) {
    PngSettings settings;
    settings.type = type;
    settings.bits = 16;
    settings.gamma = 1.0;
    const std::size_t values = static_cast<std::size_t>(64 * channels);
    const Bytes stored = random_bytes(2 * values, 9);
    const Picture picture = read(encode_png(8, 8, stored, settings));
    EXPECT_TRUE(picture.rounded);
    EXPECT_EQ(picture.channels, channels);
    ASSERT_EQ(picture.pixels.size(), values);
    for (std::size_t i = 0; i < values; ++i)
      EXPECT_NEAR(picture.pixels[i], (stored[2 * i] * 256 + stored[2 * i + 1]) / 257.0, 0.5 + 1e-9);
  }
}

TEST(Png, RefusesOtherFiles) {
  expect_user_error([] { read({}); }, "a.png: is not a PNG file");
  expect_user_error([] { read(random_bytes(5000, 4)); }, "is not a PNG file");
}

// Files that Xcode made for phones begin with a chunk of their own.
TEST(Png, CallsApplesVariantNoDamage) {
  Bytes file = encode_png(4, 4, Bytes(48, 0), {});
  const Bytes chunk = {0, 0, 0, 4, 'C', 'g', 'B', 'I', 0x50, 0, 0x20, 2, 0, 0, 0, 0};
  file.insert(file.begin() + 8, chunk.begin(), chunk.end());
  expect_user_error([&] { read(file); }, "a.png: is Apple's own variant of PNG (CgBI), which is not read; convert it");
}

TEST(Png, RefusesEveryTruncation) {
  const Bytes file = encode_png(32, 32, random_bytes(3072, 5), {});
  for (std::size_t part = 0; part < 16; ++part) expect_user_error([&] { read(cut_short(file, part)); }, "a.png: ");
  EXPECT_EQ(read(file).pixels.size(), 3072u);
}

TEST(Png, ComparesTheChecksumOfItsEnd) {
  Bytes file = encode_png(4, 4, random_bytes(48, 5), {});
  file.back() ^= 1;
  expect_user_error([&] { read(file); }, "a.png: is a damaged PNG file (IEND: CRC error)");
}

// A header that claims 100,000 x 100,000 pixels is refused before memory is allocated.
TEST(Png, RefusesHugeSizes) {
  Bytes file = encode_png(2, 2, Bytes(12, 0), {});
  for (std::size_t at : {16u, 20u}) file[at + 1] = 0x01, file[at + 2] = 0x86, file[at + 3] = 0xA0;
  set_chunk_checksums(file);
  expect_user_error([&] { read(file); }, "more than 67108864 pixels");
}

// A long picture is no damage, but beyond libpng's own limit.
TEST(Png, SaysHowLongAPictureMayBe) {
  Bytes file = encode_png(2, 1, Bytes(6, 0), {});
  put_big_endian(file.data() + 20, 60'000'000);
  set_chunk_checksums(file);
  expect_user_error([&] { read(file); }, "a.png: is 1 x 60,000,000 pixels, but at most 1,000,000 columns or rows can");
}

// A 4 x 4 picture of `pixels` with one more chunk between the header and the data, of this name and content and with
// this stated length.
Bytes with_chunk(const Bytes& pixels, const std::string& name_and_content, std::size_t length) {
  constexpr std::size_t after_header = 8 + 25, checksum = 4;
  Bytes chunk(4);
  put_big_endian(chunk.data(), static_cast<std::uint32_t>(length));
  chunk.insert(chunk.end(), name_and_content.begin(), name_and_content.end());
  chunk.resize(chunk.size() + checksum);
  Bytes file = encode_png(4, 4, pixels, {});
  file.insert(file.begin() + after_header, chunk.begin(), chunk.end());
  set_chunk_checksums(file);
  return file;
}

// A chunk that claims to be longer than the file is refused before libpng allocates memory for it, whatever its name.
TEST(Png, AllocatesNothingForAChunkThatLies) {
  const std::size_t before = peak_bytes();
  for (const char* name : {"tEXt", "zTXt", "iTXt", "sPLT", "pCAL", "eXIf", "PLTE", "IDAT", "abCd"})
    expect_user_error([&] { read(with_chunk(Bytes(48, 0), name, 0x73737373)); },
                      "a.png: is a damaged PNG file (it is cut short)");
  EXPECT_LT(peak_bytes() - before, std::size_t{100} << 20);
}

TEST(Png, SkipsTextChunksButNotTransparency) {
  using namespace std::string_literals;
  const Bytes pixels = random_bytes(48, 6);
  for (const std::string& chunk : {"tEXtComment\0two words"s, "zTXtComment\0\0no zlib stream"s, "prIvate"s})
    EXPECT_EQ(read(with_chunk(pixels, chunk, chunk.size() - 4)).pixels, pixels) << chunk;
  EXPECT_EQ(read(with_chunk(pixels, "tRNS\0\1\0\1\0\1"s, 6)).channels, 4);
}

TEST(MuLaw, DecodesToTheNearestOfItsLevels) {
  for (int level = 0; level < 256; ++level) {
    const auto byte = static_cast<std::uint8_t>(level);
    EXPECT_EQ(mu_law_encode(mu_law_decode(byte)), byte);
    if (level > 0) {
      EXPECT_GT(mu_law_decode(byte), mu_law_decode(static_cast<std::uint8_t>(level - 1)));
    }
  }
  EXPECT_EQ(mu_law_encode(-1.0f), 0);
  EXPECT_EQ(mu_law_encode(1.0f), 255);
  EXPECT_EQ(mu_law_encode(0.0f), 128);
  EXPECT_EQ(mu_law_encode(-7.0f), 0);
  EXPECT_EQ(mu_law_encode(std::nanf("")), 128);
  EXPECT_FLOAT_EQ(mu_law_decode(255), 1.0f);
  EXPECT_FLOAT_EQ(mu_law_decode(0), -1.0f);
}

// Companding keeps the ratio of signal to error near 38 dB over a range of 40 dB of loudness.
TEST(MuLaw, KeepsTheRatioOfSignalToNoiseAtEveryLoudness) {
  for (const double peak : {1.0, 0.1, 0.01}) {
    double signal = 0, noise = 0;
    for (int i = 0; i < 20000; ++i) {
      const double x = peak * std::sin(0.37 * i);
      const double error = mu_law_decode(mu_law_encode(static_cast<float>(x))) - x;
      signal += x * x, noise += error * error;
    }
    EXPECT_GT(10 * std::log10(signal / noise), peak > 0.05 ? 36 : 28) << "peak " << peak;
  }
}

TEST(Wav, WritesWhatTheFormatSays) {
  const Folder folder;
  write_wav(folder / "a.wav", {0.0f, 1.0f, -1.0f, 2.0f, 0.5f}, 12000);
  const Bytes file = get_file(folder / "a.wav");
  ASSERT_EQ(file.size(), 44u + 10u);
  const auto number = [&](std::size_t at, int bytes) {
    std::uint32_t n = 0;
    for (int i = bytes - 1; i >= 0; --i) n = n << 8 | file[at + static_cast<std::size_t>(i)];
    return n;
  };
  EXPECT_EQ(std::string(file.begin(), file.begin() + 4) + std::string(file.begin() + 8, file.begin() + 16),
            "RIFFWAVEfmt ");
  EXPECT_EQ(number(4, 4), 36u + 10u);
  EXPECT_EQ(number(20, 2), 1u);
  EXPECT_EQ(number(22, 2), 1u);
  EXPECT_EQ(number(24, 4), 12000u);
  EXPECT_EQ(number(28, 4), 24000u);
  EXPECT_EQ(number(34, 2), 16u);
  EXPECT_EQ(number(40, 4), 10u);
  std::vector<int> samples;
  for (std::size_t at = 44; at < file.size(); at += 2) samples.push_back(static_cast<std::int16_t>(number(at, 2)));
  EXPECT_EQ(samples, (std::vector<int>{0, 32767, -32767, 32767, 16384}));
}

}  // namespace
}  // namespace longstride
