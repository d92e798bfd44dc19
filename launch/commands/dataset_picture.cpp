#include "launch/commands/dataset_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "datasets/formats/mu_law.h"
#include "datasets/formats/pictures/resize.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "launch/console/canvas.h"

namespace longstride {
namespace {

constexpr std::int64_t gap = 2, band_gap = 12;
constexpr Color white = {255, 255, 255}, wave = {70, 120, 210}, boundary = {200, 200, 200}, axis = {20, 36, 90};

// A picture at the size at which it is shown: enlarged pixel by pixel, or reduced.
Canvas tile_of(const DatasetInfo& info, const std::uint8_t* pixels) {
  constexpr std::int64_t least = 64, most = 128;
  Picture picture = {info.rows, info.columns, info.channels, {}};
  picture.pixels.assign(pixels, pixels + info.image_bytes());
  const std::int64_t longest = std::max(info.rows, info.columns);
  const auto reduced = [&](std::int64_t size) { return std::max<std::int64_t>(1, size * most / longest); };
  if (longest > most)
    picture = resize(picture, {0, 0, static_cast<double>(info.columns), static_cast<double>(info.rows)},
                     reduced(info.rows), reduced(info.columns));
  const std::int64_t scale = std::max<std::int64_t>(1, least / longest);
  Canvas tile(picture.rows * scale, picture.columns * scale);
  for (std::int64_t row = 0; row < picture.rows; ++row)
    for (std::int64_t column = 0; column < picture.columns; ++column) {
      const std::uint8_t* at = picture.pixels.data() + (row * picture.columns + column) * info.channels;
      tile.fill(row * scale, column * scale, scale, scale, {at[0], at[info.channels / 2], at[info.channels - 1]});
    }
  return tile;
}

// Up to `most` pictures of a split in rows of 12.
Canvas contact_sheet(const Dataset& dataset, const std::string& split, std::int64_t most, std::int64_t& shown) {
  constexpr std::int64_t per_row = 12;
  const auto pictures = dataset.split(split);
  const std::int64_t count = std::min(most, pictures->sequences());
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(dataset.info().image_bytes()));
  Canvas sheet(0, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    pictures->read(i * pictures->sequences() / count, 0, dataset.info().image_bytes(), pixels.data());
    const Canvas tile = tile_of(dataset.info(), pixels.data());
    const std::int64_t height = tile.rows() + gap, width = tile.columns() + gap;
    if (i == 0) sheet = Canvas((count + per_row - 1) / per_row * height - gap, per_row * width - gap, white);
    sheet.place(tile, i / per_row * height, i % per_row * width);
  }
  shown += count;
  return sheet;
}

// The sound of a split from left to right. A column shows the range of up to 4,096 samples from where it begins.
Canvas strip(const Dataset& dataset, const std::string& split) {
  constexpr std::int64_t width = 1200, half = 80, most = 4096, most_boundaries = 200;
  Canvas out(2 * half + 1, width, white);
  const auto whole = dataset.split(split, true);
  const auto files = dataset.split(split);
  const std::int64_t total = whole->length(0);
  std::int64_t begin = 0;
  for (std::int64_t f = 0; f + 1 < files->sequences() && files->sequences() <= most_boundaries; ++f) {
    begin += files->length(f);
    out.fill(0, static_cast<std::int64_t>(static_cast<double>(begin) / static_cast<double>(total) * width), out.rows(),
             1, boundary);
  }
  out.fill(half, 0, 1, width, axis);
  std::vector<std::uint8_t> levels(most);
  for (std::int64_t column = 0; column < width; ++column) {
    const auto at = [&](std::int64_t c) { return total / width * c + total % width * c / width; };
    const std::int64_t count =
        std::min({most, std::max<std::int64_t>(1, at(column + 1) - at(column)), total - at(column)});
    whole->read(0, at(column), count, levels.data());
    const auto [low, high] = std::minmax_element(levels.begin(), levels.begin() + count);
    const auto row = [&](std::uint8_t level) { return half - std::lround(mu_law_decode(level) * half); };
    out.fill(row(*high), column, row(*low) - row(*high) + 1, 1, wave);
  }
  return out;
}

}  // namespace

void check_can_be_drawn(const Dataset& dataset) {
  const DatasetInfo& info = dataset.info();
  const bool sound = info.kind == DataKind::audio;
  if (is_text(info.kind))
    throw user_error("{}: holds text, but --picture shows pictures and sound; leave it out", dataset.path());
  if (sound && info.encoding != "mu-law 255")
    throw user_error("{}: its encoding is '{}', but --picture shows only mu-law 255; leave it out", dataset.path(),
                     info.encoding);
  if (!sound && info.channels != 1 && info.channels != 3)
    throw user_error("{}: its pictures have {} channels, but --picture shows grey and RGB; leave it out",
                     dataset.path(), info.channels);
}

std::string draw_dataset(const Dataset& dataset, const std::string& path) {
  const bool sound = dataset.info().kind == DataKind::audio;
  std::vector<Canvas> bands;
  std::int64_t shown = 0, height = 0, width = 0;
  for (const std::string split : split_names) {
    if (dataset.size(split).bytes == 0) continue;
    bands.push_back(sound ? strip(dataset, split) : contact_sheet(dataset, split, split == "train" ? 96 : 24, shown));
    height += bands.back().rows() + band_gap;
    width = std::max(width, bands.back().columns());
  }
  if (bands.empty()) throw user_error("{}: is empty, so --picture has nothing to show; leave it out", dataset.path());
  Canvas all(height - band_gap, width, white);
  std::int64_t row = 0;
  for (const Canvas& band : bands) {
    all.place(band, row, 0);
    row += band.rows() + band_gap;
  }
  all.write(path);
  const std::string splits = counted(std::ssize(bands), "split");
  return sound ? "the sound of " + splits : counted(shown, "picture") + " of " + splits;
}

}  // namespace longstride
