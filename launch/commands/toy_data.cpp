#include "launch/commands/toy_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numbers>
#include <random>
#include <vector>

#include "datasets/formats/mu_law.h"
#include "datasets/formats/png.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

std::string sentences(std::size_t bytes) {
  const std::vector<std::string> subjects = {"the wind",    "a river",  "the old clock", "every bird",
                                             "the painter", "a letter", "the train",     "our garden"},
                                 verbs = {"follows",  "remembers", "crosses",  "waits for",
                                          "sings to", "hides",     "outlives", "finds"},
                                 ends = {"in winter",  "before noon", "without a word",
                                         "by the sea", "once more",   "under the bridge"};
  Random random(1);
  std::string text;
  while (text.size() < bytes)
    text += fmt::format("{} {} {} {}. ", subjects[below(random, subjects.size())], verbs[below(random, verbs.size())],
                        subjects[below(random, subjects.size())], ends[below(random, ends.size())]);
  return text;
}

// A disc on a gradient, (rows, columns, channels).
std::vector<std::uint8_t> drawing(Random& random, std::int64_t side) {
  const auto number = [&](double least, double most) { return least + (most - least) * (random() % 1000) / 1000.0; };
  const double x0 = number(0.2, 0.8), y0 = number(0.2, 0.8), radius = number(0.1, 0.3), slope = number(-80, 80);
  double ground[3], disc[3];
  for (int c = 0; c < 3; ++c) {
    ground[c] = number(60, 200);
    disc[c] = number(20, 240);
  }
  std::vector<std::uint8_t> pixels;
  for (std::int64_t r = 0; r < side; ++r)
    for (std::int64_t k = 0; k < side; ++k)
      for (int c = 0; c < 3; ++c) {
        const double y = static_cast<double>(r) / static_cast<double>(side);
        const double x = static_cast<double>(k) / static_cast<double>(side);
        const bool inside = std::hypot(x - x0, y - y0) < radius;
        const double value = (inside ? disc[c] : ground[c] + slope * y) + number(-6, 6);
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
  return pixels;
}

// CIFAR-10's own layout: a label, then the planes of a 32 x 32 picture.
void draw_cifar10(const fs::path& folder) {
  Random random(2);
  for (const auto& [name, count] : {std::pair{"data_batch_1.bin", 100}, {"test_batch.bin", 12}}) {
    std::string records;
    for (int i = 0; i < count; ++i) {
      const std::vector<std::uint8_t> pixels = drawing(random, 32);
      records += static_cast<char>(i % 10);
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t p = 0; p < 1024; ++p) records += static_cast<char>(pixels[3 * p + c]);
    }
    write_file_atomically((folder / name).string(), records);
  }
}

void draw_pictures(const fs::path& folder) {
  Random random(3);
  for (int i = 0; i < 40; ++i) {
    const std::vector<std::uint8_t> pixels = drawing(random, 64);
    write_png((folder / fmt::format("{:02}.png", i)).string(), 64, 64, 3, pixels.data());
  }
}

// Decaying notes of a scale, about a second each, as mu-law bytes: eight files to train on, one each for validation and
// testing.
void pluck(const std::string& path) {
  constexpr std::int64_t rate = 12000, length = 8 * rate;
  DatasetInfo info;
  info.kind = DataKind::audio;
  info.rate = rate;
  info.encoding = "mu-law 255";
  DatasetWriter writer(path, info, false);
  Random random(4);
  for (int file = 0; file < 10; ++file) {
    std::vector<float> sound(length, 0.0F);
    for (std::int64_t begin = 0; begin < length; begin += rate / 3) {
      const double pitch = 220 * std::pow(2.0, static_cast<double>(below(random, 12)) / 12);
      for (std::int64_t t = begin; t < length; ++t) {
        const double s = static_cast<double>(t - begin) / rate, phase = 2 * std::numbers::pi * pitch * s;
        sound[static_cast<std::size_t>(t)] +=
            static_cast<float>(0.25 * std::exp(-4 * s) * (std::sin(phase) + 0.4 * std::sin(2 * phase)));
      }
    }
    std::vector<std::uint8_t> bytes;
    for (float sample : sound) bytes.push_back(mu_law_encode(sample));
    const SplitId split = file < 8 ? SplitId::train : file == 8 ? SplitId::valid : SplitId::test;
    writer.append(split, bytes.data(), length);
    writer.end_file(split);
  }
  writer.commit("8, 1 and 1 files, made up");
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw user_error("{}: cannot be created ({}); choose another folder with --output", folder.string(),
                     error.message());
}

void prepare(DataKind kind, const std::string& raw, const PrepareOutput& output) {
  switch (kind) {
    case DataKind::tokens:
      throw user_error("{}: becomes tokens by `longstride prepare tokens`; give the .h5 file that it writes", raw);
    case DataKind::bytes:
      return prepare_bytes({{raw}, "0.9,0.05,0.05"}, output);
    case DataKind::cifar10:
      return prepare_cifar10({{raw}, 1}, output);
    case DataKind::images: {
      PrepareImagesConfig config;
      config.inputs = {raw};
      return prepare_images(config, output);
    }
    case DataKind::audio: {
      PrepareAudioConfig config;
      config.inputs = {raw};
      return prepare_audio(config, output);
    }
  }
}

const char* raw_folder(DataKind kind) { return kind == DataKind::bytes ? "text" : name_of(kind); }

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code absent;
  for (const fs::path path : entries_of(folder.string()))
    if (fs::is_regular_file(path, absent)) files.push_back(path);
  return files;
}

}  // namespace

std::string dataset_in(const std::string& folder, DataKind kind, const std::string& output) {
  for (const fs::path& file : files_in(folder))
    if (file.extension() == ".h5" && Dataset::open(file.string())->info().kind == kind) return file.string();
  const fs::path raw = fs::path(folder) / raw_folder(kind);
  if (!fs::exists(raw)) return "";
  const std::string path = (fs::path(output) / fmt::format("{}.h5", raw_folder(kind))).string();
  if (fs::exists(path)) return path;
  make_folder(output);
  std::string input = raw.string();
  if (kind == DataKind::bytes && fs::is_directory(raw)) {
    const std::vector<fs::path> texts = files_in(raw);
    if (texts.size() != 1)
      throw user_error("{}: holds {} files, but must be or hold exactly one, whose bytes are the text", input,
                       texts.size());
    input = texts.front().string();
  }
  prepare(kind, input, {path, false, {}});
  return path;
}

std::string made_up_dataset(DataKind kind, const std::string& output) {
  const std::string path = (fs::path(output) / fmt::format("made-up-{}.h5", raw_folder(kind))).string();
  if (fs::exists(path)) return path;
  const fs::path raw = fs::path(output) / fmt::format("made-up-{}", raw_folder(kind));
  make_folder(raw);
  switch (kind) {
    case DataKind::bytes:
      write_file_atomically((raw / "text").string(), sentences(400000));
      prepare(kind, (raw / "text").string(), {path, false, {}});
      return path;
    case DataKind::cifar10:
      draw_cifar10(raw);
      break;
    case DataKind::images:
      draw_pictures(raw);
      break;
    case DataKind::audio:
      pluck(path);
      return path;
    case DataKind::tokens:
      break;  // no table has them
  }
  prepare(kind, raw.string(), {path, false, {}});
  return path;
}

}  // namespace longstride
