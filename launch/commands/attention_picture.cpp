#include "launch/commands/attention_picture.h"

#include <cmath>

#include "datasets/formats/mu_law.h"

namespace longstride {
namespace {

constexpr Color query_color = {255, 72, 48}, black = {0, 0, 0}, margin_color = {52, 54, 60},
                divider_color = {255, 168, 48};
constexpr int dimmed = 38;                             // percent of the picture's own brightness
constexpr std::int64_t picture_pixels = 256;           // per side, approximately
constexpr std::int64_t widest_strip = 1024, band = 8;  // pixels
constexpr std::int64_t margin = 8;                     // pixels, between the pictures of a sheet

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

// A byte of text or sound as a strip shows it: its height in the band, 0 to 1, and its color.
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

struct StripCell {
  double light = 0;
  Mark mark = {0, black};
  bool shown = false;  // otherwise it lies in the future, or before the stream's beginning
};
using StripPart = std::vector<StripCell>;

// Stacked lines of every part, each with the data above and the attention below. A line divides the parts. The last
// part's cell `query` is outlined.
Canvas as_strip(const std::vector<StripPart>& parts, std::int64_t line_cells, std::int64_t query) {
  constexpr std::int64_t line_height = 2 * band + 4, divider = 2;
  const std::int64_t together = (line_cells + widest_strip - 1) / widest_strip;  // cells per column
  const std::int64_t columns = (line_cells + together - 1) / together;
  const std::int64_t pixels = std::clamp<std::int64_t>(widest_strip / columns, 1, 8);
  const auto lines_of = [&](const StripPart& part) { return (std::ssize(part) + line_cells - 1) / line_cells; };
  std::int64_t height = -divider;
  for (const StripPart& part : parts) height += lines_of(part) * line_height + divider;
  Canvas canvas(height, columns * pixels, black);
  std::int64_t top = 0;
  for (const StripPart& part : parts) {
    const bool last = &part == &parts.back();
    for (std::int64_t line = 0; line < lines_of(part); ++line, top += line_height)
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t begin = line * line_cells + column * together, x = column * pixels, row = top + 2,
                           end = std::min({begin + together, (line + 1) * line_cells, std::ssize(part)});
        StripCell all;
        for (std::int64_t c = begin; c < end; ++c) {
          const StripCell& cell = part[static_cast<std::size_t>(c)];
          if (!cell.shown) continue;
          if (cell.mark.height >= all.mark.height) all.mark = cell.mark;
          all.light = std::max(all.light, cell.light);
          all.shown = true;
        }
        if (all.shown) {
          const auto mark = static_cast<std::int64_t>(std::llround(all.mark.height * band));
          canvas.fill(row + band - mark, x, mark, pixels, all.mark.color);
          canvas.fill(row + band, x, band, pixels, lit({24, 26, 32}, all.light));
        }
        if (last && begin <= query && query < begin + together)
          canvas.outline(row, x, 2 * band, pixels, 2, query_color);
      }
    if (!last) canvas.fill(top, 0, divider, columns * pixels, divider_color);
    top += divider;
  }
  return canvas;
}

Canvas segment_strip(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  const std::vector<double> light = brightness(weights, query);
  StripPart cells(view.bytes.size());
  for (std::size_t b = 0; b < light.size(); ++b) cells[b] = {light[b], mark_of(view.kind, view.bytes[b]), true};
  return as_strip({cells}, view.lines, query);
}

// A row of the memory or of the segment holds the byte before its position: the last of those before the segment is
// held by the segment's first row.
Canvas remembered_strip(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  const auto compressed = static_cast<std::size_t>(view.keys.compressed),
             before = static_cast<std::size_t>(view.keys.memory) + 1, known = view.remembered.size();
  double most = 0;
  for (double w : weights) most = std::max(most, w);
  const auto light = [&](std::size_t row) { return most > 0 ? std::sqrt(weights[row] / most) : 0; };
  std::vector<StripPart> parts;
  if (compressed > 0) {
    parts.emplace_back(compressed);
    for (std::size_t r = 0; r < compressed; ++r) parts.back()[r] = {light(r), {0, black}, true};
  }
  parts.emplace_back(before);
  for (std::size_t r = 0; r < before; ++r) {
    const bool has_byte = r + known >= before;
    parts.back()[r] = {light(compressed + r),
                       has_byte ? mark_of(view.kind, view.remembered[r + known - before]) : Mark{0, black}, true};
  }
  parts.emplace_back(view.bytes.size());
  for (std::size_t b = 0; b < static_cast<std::size_t>(query); ++b)
    parts.back()[b] = {light(compressed + before + b), mark_of(view.kind, view.bytes[b]), true};
  return as_strip(parts, view.lines, query);
}

// Every position holds its own byte.
Canvas added_strip(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  const auto added = static_cast<std::size_t>(view.keys.added);
  const double most = *std::max_element(weights.begin(), weights.end());
  const auto light = [&](std::size_t row) { return most > 0 ? std::sqrt(weights[row] / most) : 0; };
  std::vector<StripPart> parts = {StripPart(added), StripPart(view.bytes.size())};
  for (std::size_t r = 0; r < added; ++r) parts[0][r] = {light(r), {0, black}, true};
  for (std::size_t b = 0; b < view.bytes.size(); ++b)
    parts[1][b] = {light(added + b), mark_of(view.kind, view.bytes[b]), true};
  return as_strip(parts, view.lines, query);
}

}  // namespace

Canvas attention_picture(const AttentionView& view, const std::vector<double>& weights, std::int64_t query) {
  if (view.keys.added > 0) return added_strip(view, weights, query);
  if (view.keys.before() > 0) return remembered_strip(view, weights, query);
  return view.geometry.rows > 0 ? over_picture(view, weights, query) : segment_strip(view, weights, query);
}

std::int64_t strip_line(const KeyRows& keys, std::int64_t stride) {
  constexpr std::int64_t most_lines_of_segment = 8, most_lines = 256;
  const auto lines_of = [](std::int64_t rows, std::int64_t line) { return (rows + line - 1) / line; };
  std::int64_t line = stride * lines_of(lines_of(keys.segment, stride), most_lines_of_segment);
  while (lines_of(keys.all(), line) > most_lines) line *= 2;
  return line;
}

Canvas contact_sheet(const std::vector<Canvas>& pictures, std::int64_t across) {
  const std::int64_t rows = pictures.front().rows() + margin, columns = pictures.front().columns() + margin;
  const auto count = static_cast<std::int64_t>(pictures.size());
  Canvas sheet((count + across - 1) / across * rows + margin, std::min(across, count) * columns + margin, margin_color);
  for (std::int64_t i = 0; i < count; ++i)
    sheet.place(pictures[static_cast<std::size_t>(i)], margin + i / across * rows, margin + i % across * columns);
  return sheet;
}

std::int64_t pixels_of_sheet(const Canvas& picture, std::int64_t count, std::int64_t across) {
  return ((count + across - 1) / across * (picture.rows() + margin) + margin) *
         (std::min(across, count) * (picture.columns() + margin) + margin);
}

}  // namespace longstride
