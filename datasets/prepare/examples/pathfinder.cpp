// The rules of the published generator, with the numbers of the Long Range Arena's pictures of 32 x 32. Dashes are
// drawn with smooth edges and keep a margin from one another. Two contours begin in the middle and grow in turn; then
// short ones follow wherever there is room, and two dots: on both ends of one contour, or on the beginning of one and
// the end of the other.
#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <numbers>

#include "datasets/prepare/examples/task.h"

namespace longstride {
namespace {

constexpr int side = 32, border = 1;
constexpr int contour_dashes = 14, short_dashes = contour_dashes / 3, short_contours = 20 / short_dashes;
constexpr double dash = 2, thickness = 0.5, margin = 1;
constexpr double between_starts = 7, dot_radius = 1.5, brightness = 2 * 0.75;
constexpr double continuity = 1;  // how much rarer bends are than straight continuations
constexpr int samples = 4;        // per side of a pixel
constexpr int tries_of_dash = 3, tries_of_short = 5, tries_of_start = 400;

using Mask = std::bitset<side * side>;

struct Point {
  double x = 0, y = 0;
  Point moved(double angle, double length) const {
    return {x + length * std::cos(angle), y + length * std::sin(angle)};
  }
  bool inside() const { return x >= 0 && x < side && y >= 0 && y < side; }
};

double distance_to_segment(const Point& p, const Point& a, const Point& b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double along = std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy + 1e-12), 0.0, 1.0);
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

// Calls visit(pixel, middle of the pixel) where a pixel may be within `reach` of the segment.
template <class Visit>
void near(const Point& a, const Point& b, double reach, const Visit& visit) {
  const auto clamped = [](double at) { return std::clamp(static_cast<int>(std::floor(at)), 0, side - 1); };
  for (int y = clamped(std::min(a.y, b.y) - reach); y <= clamped(std::max(a.y, b.y) + reach); ++y)
    for (int x = clamped(std::min(a.x, b.x) - reach); x <= clamped(std::max(a.x, b.x) + reach); ++x)
      visit(static_cast<std::size_t>(y * side + x), Point{x + 0.5, y + 0.5});
}

// Pixels that a dash keeps free of others.
Mask room_of(const Point& a, const Point& b) {
  Mask out;
  near(a, b, margin, [&](std::size_t pixel, const Point& p) {
    if (distance_to_segment(p, a, b) <= margin) out.set(pixel);
  });
  return out;
}

struct Picture {
  Picture() {
    for (int i = 0; i < side; ++i)
      for (int edge = 0; edge < border; ++edge)
        for (const int pixel :
             {i * side + edge, i * side + side - 1 - edge, edge * side + i, (side - 1 - edge) * side + i})
          taken.set(static_cast<std::size_t>(pixel));
  }

  std::vector<std::pair<Point, Point>> dashes;
  Mask taken;  // no other dash may be there
};

using Light = std::array<double, side * side>;

// Everything within `radius` of the segment, as bright as the share of the pixel times `most`.
void draw(Light& light, const Point& a, const Point& b, double radius, double most) {
  near(a, b, radius + 1, [&](std::size_t pixel, const Point& p) {
    int covered = 0;
    for (int i = 0; i < samples * samples; ++i) {
      const double shift_x = (i % samples + 0.5) / samples - 0.5, shift_y = (i / samples + 0.5) / samples - 0.5;
      covered += distance_to_segment({p.x + shift_x, p.y + shift_y}, a, b) <= radius ? 1 : 0;
    }
    light[pixel] = std::max(light[pixel], std::min(1.0, most * covered / (samples * samples)));
  });
}

// A contour that grows.
struct Contour {
  Point begin, end, pivot;  // pivot: in the gap before the last dash
  double angle = 0;
  Mask last;  // room of the last dash, which the next one may touch

  void start(Picture& picture, const Point& tail, double direction) {
    begin = tail, angle = direction;
    end = tail.moved(angle, dash);
    pivot = tail.moved(angle, -margin);
    picture.dashes.emplace_back(begin, end);
    last = room_of(begin, end);
  }

  bool extend(Picture& picture, const Mask& others, Draws& draws) {
    const Point turn = pivot.moved(angle, dash + 2 * margin);
    for (int i = 0; i < tries_of_dash; ++i) {
      const std::optional<double> next = direction(turn, picture.taken | others, draws);
      if (!next) return false;
      const Point tail = turn.moved(*next, margin), head = turn.moved(*next, dash + margin);
      const Mask room = room_of(tail, head);
      if ((room & (picture.taken | others)).any()) continue;
      picture.dashes.emplace_back(tail, head);
      picture.taken |= last;
      last = room, pivot = turn, angle = *next, end = head;
      return true;
    }
    return false;
  }

 private:
  // One in proportion to the squared cosine of the bend, among those whose end is free.
  std::optional<double> direction(const Point& turn, const Mask& occupied, Draws& draws) const {
    constexpr double radius = dash + margin;
    const int count = static_cast<int>(2 * std::numbers::pi * radius);  // a pixel apart
    std::vector<double> weights(static_cast<std::size_t>(count));
    double sum = 0;
    const auto angle_of = [&](int i) { return 2 * std::numbers::pi * i / count; };
    for (int i = 0; i < count; ++i) {
      const Point head = turn.moved(angle_of(i), radius);
      if (!head.inside() || occupied.test(static_cast<std::size_t>(head.y) * side + static_cast<std::size_t>(head.x)))
        continue;
      const double bend = std::abs(std::remainder(angle_of(i) - angle, 2 * std::numbers::pi));
      const double cosine = std::cos(std::min(bend * continuity, std::numbers::pi / 2));
      sum += weights[static_cast<std::size_t>(i)] = cosine * cosine;
    }
    if (sum < 1e-4) return {};
    double at = draws.uniform() * sum;
    int i = 0;
    while (i + 1 < count && (at -= weights[static_cast<std::size_t>(i)]) >= 0) ++i;
    return angle_of(i);
  }
};

double any_angle(Draws& draws) { return 2 * std::numbers::pi * static_cast<double>(draws.below(360)) / 360; }

bool draw_two(Picture& picture, std::array<Contour, 2>& contours, Draws& draws) {
  const double middle = 2 * between_starts, width = side - 2 * middle;
  const Point first{middle + draws.uniform() * width, middle + draws.uniform() * width};
  const Point second = first.moved(any_angle(draws), between_starts);
  contours[0].start(picture, first, any_angle(draws));
  contours[1].start(picture, second, any_angle(draws));
  if ((contours[0].last & contours[1].last).any()) return false;
  for (int i = 1; i < contour_dashes; ++i)
    for (std::size_t c = 0; c < 2; ++c)
      if (!contours[c].extend(picture, contours[1 - c].last, draws)) return false;
  picture.taken |= contours[0].last | contours[1].last;
  return true;
}

// Any place where a dash of this direction may begin; none is found if there is next to no room.
std::optional<Point> free_start(const Mask& taken, double angle, Draws& draws) {
  for (int i = 0; i < tries_of_start; ++i) {
    const Point tail{static_cast<double>(draws.below(side)) + 0.5, static_cast<double>(draws.below(side)) + 0.5};
    const Point head = tail.moved(angle, dash);
    if (head.inside() && (room_of(tail, head) & taken).none()) return tail;
  }
  return {};
}

void draw_short(Picture& picture, Draws& draws) {
  for (int i = 0; i < tries_of_short; ++i) {
    Picture with = picture;
    const double angle = any_angle(draws);
    const std::optional<Point> start = free_start(picture.taken, angle, draws);
    if (!start) continue;
    Contour contour;
    contour.start(with, *start, angle);
    bool whole = true;
    for (int d = 1; whole && d < short_dashes; ++d) whole = contour.extend(with, {}, draws);
    if (!whole) continue;
    with.taken |= contour.last;
    picture = with;
    return;
  }
}

}  // namespace

std::optional<Example> make_pathfinder(Draws& draws) {
  Picture picture;
  std::array<Contour, 2> contours;
  Example out;
  out.label = static_cast<std::uint16_t>(draws.below(2));
  if (!draw_two(picture, contours, draws)) return {};
  for (int i = 0; i < short_contours; ++i) draw_short(picture, draws);
  const auto first = static_cast<std::size_t>(draws.below(2));
  const Point begin = contours[first].begin, end = contours[out.label == 1 ? first : 1 - first].end;
  Light light{};
  for (const auto& [from, to] : picture.dashes) draw(light, from, to, thickness / 2, brightness);
  for (const Point& dot : {begin, end}) draw(light, dot, dot, dot_radius, 1);
  for (const double share : light) out.bytes.push_back(static_cast<std::uint8_t>(std::lround(255 * share)));
  return out;
}

}  // namespace longstride
