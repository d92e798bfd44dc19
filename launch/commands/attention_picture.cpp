#include "launch/commands/attention_picture.h"

#include <cmath>

#include "datasets/formats/mu_law.h"

namespace longstride {
namespace {

constexpr Color query_color = {255, 72, 48}, black = {0, 0, 0}, margin_color = {52, 54, 60};
constexpr int dimmed = 38;                             // percent of the picture's own brightness
constexpr std::int64_t picture_pixels = 256;           // per side, approximately
constexpr std::int64_t widest_strip = 1024, band = 8;  // pixels

// Weights of the bytes that have been read; the strongest is white. The square root makes the weak ones visible.
std::vector<double> brightness(const std::vector<double>& weights, std::int64_t query) {
  std::vector<double> out(static_cast<std::size_t>(query), 0.0);
  double most = 0;
  for (std::size_t b = 0; b < out.size(); ++b) most = std::max(most, out[b] = weights[b + 1]);
  for (double& w : out) w = most > 0 ? std::sqrt(w / most) : 0;
  return out;
}

Color lit(Color below, double light) {
  for (std::uint8_t& c : below) c = static_cast<std::uint8_t>(std::lround(c + (255 - c) * std::clamp(light, 0.0, 1.0)));
  return below;
}

Canvas over_picture(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  const Geometry& g = view.geometry;
  const std::int64_t scale = std::max<std::int64_t>(1, picture_pixels / std::max(g.rows, g.columns));
  // A pixel's brightness is the sum over its channels.
  const std::int64_t pixels = g.rows * g.columns;
  std::vector<double> slots(static_cast<std::size_t>(pixels) + 1, 0.0);
  for (std::int64_t b = 0; b < query; ++b)
    slots[static_cast<std::size_t>(b / g.channels) + 1] += weights[static_cast<std::size_t>(b) + 1];
  const std::vector<double> light = brightness(slots, pixels);
  Canvas canvas(g.rows * scale, g.columns * scale, black);
  for (std::int64_t p = 0; p * g.channels < query; ++p) {
    Color color = {};
    int grey = 0;
    for (std::int64_t c = 0; c < 3; ++c) {
      const std::int64_t at = p * g.channels + std::min(c, g.channels - 1);
      color[static_cast<std::size_t>(c)] = at < query ? view.bytes[static_cast<std::size_t>(at)] : std::uint8_t{0};
      grey += color[static_cast<std::size_t>(c)];
    }
    for (std::uint8_t& c : color) c = static_cast<std::uint8_t>((c + grey / 3) * dimmed / 200);
    canvas.fill(p / g.columns * scale, p % g.columns * scale, scale, scale,
                lit(color, light[static_cast<std::size_t>(p)]));
  }
  const std::int64_t at = query / g.channels;
  canvas.outline(at / g.columns * scale, at % g.columns * scale, scale, scale, std::max<std::int64_t>(1, scale / 4),
                 query_color);
  return canvas;
}

// What a byte of text or sound looks like in a strip: its height in the band, 0 to 1, and its color.
struct Mark {
  double height;
  Color color;
};
Mark mark_of(DataKind kind, std::uint8_t byte) {
  if (kind == DataKind::audio) return {std::abs(static_cast<double>(mu_law_decode(byte))), {70, 150, 170}};
  const bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
  if (byte == ' ' || byte == '\n') return {0.15, {60, 64, 76}};
  return {letter ? 0.6 : 1.0, letter ? Color{92, 110, 150} : Color{150, 120, 80}};
}

// Stacked lines, each with the data above and the attention below.
Canvas as_strip(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  const auto positions = static_cast<std::int64_t>(view.bytes.size());
  const std::int64_t together = (view.lines + widest_strip - 1) / widest_strip;  // positions per column
  const std::int64_t columns = (view.lines + together - 1) / together;
  const std::int64_t cell = std::clamp<std::int64_t>(widest_strip / columns, 1, 8);
  const std::int64_t lines = (positions + view.lines - 1) / view.lines, line_height = 2 * band + 4;
  const std::vector<double> light = brightness(weights, query);
  Canvas canvas(lines * line_height, columns * cell, black);
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t begin = line * view.lines + column * together;
      const std::int64_t end = std::min({begin + together, (line + 1) * view.lines, query});
      const std::int64_t row = line * line_height + 2, x = column * cell;
      Mark mark = {0, black};
      double most = 0;
      for (std::int64_t b = begin; b < end; ++b) {
        const Mark one = mark_of(view.kind, view.bytes[static_cast<std::size_t>(b)]);
        if (one.height >= mark.height) mark = one;
        most = std::max(most, light[static_cast<std::size_t>(b)]);
      }
      if (begin < end) {
        const auto height = std::max<std::int64_t>(1, std::llround(mark.height * band));
        canvas.fill(row + band - height, x, height, cell, mark.color);
        canvas.fill(row + band, x, band, cell, lit({24, 26, 32}, most));
      }
      if (begin <= query && query < begin + together) canvas.outline(row, x, 2 * band, cell, 2, query_color);
    }
  return canvas;
}

}  // namespace

Canvas attention_picture(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  return view.geometry.rows > 0 ? over_picture(view, weights, query) : as_strip(view, weights, query);
}

std::int64_t strip_line(std::int64_t positions, std::int64_t stride) {
  constexpr std::int64_t most_lines = 8;
  const std::int64_t strides = (positions + stride - 1) / stride;
  return stride * ((strides + most_lines - 1) / most_lines);
}

Canvas contact_sheet(const std::vector<Canvas>& pictures, std::int64_t across) {
  constexpr std::int64_t margin = 8;
  const std::int64_t rows = pictures.front().rows() + margin, columns = pictures.front().columns() + margin;
  const auto count = static_cast<std::int64_t>(pictures.size());
  Canvas sheet((count + across - 1) / across * rows + margin, std::min(across, count) * columns + margin, margin_color);
  for (std::int64_t i = 0; i < count; ++i)
    sheet.place(pictures[static_cast<std::size_t>(i)], margin + i / across * rows, margin + i % across * columns);
  return sheet;
}

}  // namespace longstride
