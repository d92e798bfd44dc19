#include "datasets/formats/pictures/fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "datasets/formats/pictures/resize.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

// Without its alpha channel. Behind transparent pixels is black or white.
Picture without_alpha(Picture in, PictureAlpha rule, const std::string& name) {
  if (in.channels != 2 && in.channels != 4) return in;
  const auto channels = static_cast<std::size_t>(in.channels), colours = channels - 1;
  const std::size_t count = in.pixels.size() / channels;
  bool opaque = true;
  for (std::size_t i = 0; i < count; ++i) opaque = opaque && in.pixels[i * channels + colours] == 255;
  if (!opaque && rule == PictureAlpha::refuse)
    throw user_error(
        "{}: is partly transparent; put it on a background with --alpha black or --alpha white, or ignore its "
        "transparency with --alpha drop",
        name);
  const int behind = rule == PictureAlpha::white ? 255 : 0;
  std::uint8_t* to = in.pixels.data();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* from = in.pixels.data() + i * channels;
    const int alpha = opaque || rule == PictureAlpha::drop ? 255 : from[colours];
    for (std::size_t c = 0; c < colours; ++c)
      *to++ = static_cast<std::uint8_t>((from[c] * alpha + behind * (255 - alpha) + 127) / 255);
  }
  in.pixels.resize(count * colours);
  in.channels = static_cast<std::int64_t>(colours);
  return in;
}

// As ImageOps.fit of Pillow: the largest square in the middle, scaled.
Picture cropped(const Picture& in, std::int64_t side) {
  const auto width = static_cast<double>(in.columns), height = static_cast<double>(in.rows);
  const double size = std::min(width, height), left = (width - size) / 2, top = (height - size) / 2;
  return resize(in, {left, top, left + size, top + size}, side, side);
}

// As ImageOps.pad of Pillow: all of it, scaled, in the middle of a black square.
Picture padded(const Picture& in, std::int64_t side) {
  const auto width = static_cast<double>(in.columns), height = static_cast<double>(in.rows);
  const auto shorter = [&](double less, double more) {  // halves to even, as in Python
    return std::max<std::int64_t>(1, std::lrint(less / more * static_cast<double>(side)));
  };
  const std::int64_t columns = width < height ? shorter(width, height) : side;
  const std::int64_t rows = height < width ? shorter(height, width) : side;
  const Picture scaled = resize(in, {0, 0, width, height}, rows, columns);
  if (rows == side && columns == side) return scaled;
  const auto before = [&](std::int64_t size) { return std::lrint(static_cast<double>(side - size) / 2); };
  Picture out = {side, side, in.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(side * side * in.channels));
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(out.pixels.data() + ((before(rows) + row) * side + before(columns)) * in.channels,
                scaled.pixels.data() + row * columns * in.channels, static_cast<std::size_t>(columns * in.channels));
  return out;
}

Picture sized(Picture in, const PictureRules& rules, const std::string& name) {
  if (in.rows == rules.side && in.columns == rules.side) return in;
  if (rules.fit == PictureFit::crop) return cropped(in, rules.side);
  if (rules.fit == PictureFit::pad) return padded(in, rules.side);
  throw user_error("{}: is {} x {} pixels, but --size is {}; scale it with --fit crop or --fit pad, or change --size",
                   name, in.columns, in.rows, rules.side);
}

}  // namespace

Picture upright(Picture in) {
  if (in.orientation == 1) return in;
  // EXIF's numbers: 2, 3 and 4 mirror rows, columns or both; 5 to 8 do the same and exchange rows and columns.
  const bool exchanged = in.orientation >= 5;
  const bool from_right = in.orientation == 2 || in.orientation == 3 || in.orientation == 7 || in.orientation == 8;
  const bool from_bottom = in.orientation == 3 || in.orientation == 4 || in.orientation == 6 || in.orientation == 7;
  Picture out = {exchanged ? in.columns : in.rows, exchanged ? in.rows : in.columns, in.channels, {}};
  out.rounded = in.rounded, out.cmyk = in.cmyk;
  out.pixels.resize(in.pixels.size());
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t row = 0; row < out.rows; ++row)
    for (std::int64_t column = 0; column < out.columns; ++column, to += in.channels) {
      const std::int64_t r = exchanged ? column : row, c = exchanged ? row : column;
      const std::int64_t at = (from_bottom ? in.rows - 1 - r : r) * in.columns + (from_right ? in.columns - 1 - c : c);
      std::memcpy(to, in.pixels.data() + at * in.channels, static_cast<std::size_t>(in.channels));
    }
  return out;
}

std::vector<std::uint8_t> fit_picture(Picture picture, const PictureRules& rules, const std::string& name) {
  picture = without_alpha(std::move(picture), rules.alpha, name);
  if (picture.channels == 1 && !rules.convert_grey)
    throw user_error("{}: is grey; convert grey pictures to RGB with --grey convert", name);
  picture = sized(upright(std::move(picture)), rules, name);
  if (picture.channels == 3) return std::move(picture.pixels);
  std::vector<std::uint8_t> rgb(picture.pixels.size() * 3);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = picture.pixels[i / 3];
  return rgb;
}

}  // namespace longstride
