#include "launch/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "framework/core/text/utf8.h"
#include "framework/train/metrics/progress.h"
#include "launch/report/report_script.h"
#include "launch/report/report_style.h"

namespace longstride {
namespace {

constexpr double width = 640, height = 260, left = 66, right = 12, top = 30, low = 30;

// True if the character of `length` bytes at `at` may occur in a page.
bool fit_for_html(const std::string& s, std::size_t at, std::size_t length) {
  return length > 0 && (!is_control(s, at) || s[at] == '\n' || s[at] == '\t');
}

// Means of equal runs of points, so that a curve has at most `most`.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, std::size_t most) {
  const std::size_t together = (points.size() + most - 1) / most;
  std::vector<std::pair<double, double>> out;
  for (std::size_t begin = 0; begin < points.size(); begin += together) {
    const std::size_t end = std::min(begin + together, points.size());
    double x = 0, y = 0;
    for (std::size_t i = begin; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    out.emplace_back(x / static_cast<double>(end - begin), y / static_cast<double>(end - begin));
  }
  return out;
}

// 1, 2 or 5 times a power of ten, chosen so that `span` holds about `count` of them.
double round_step(double span, int count) {
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string number(double value) {
  if (std::abs(value) < 1e-12) return "0";  // also -0
  return std::abs(value) >= 1000 ? rate_text(value) : fmt::format("{:.3g}", value);
}

struct Axis {
  double begin, end;
  bool logarithmic = false;
  double place(double v) const {
    return logarithmic ? (std::log(v) - std::log(begin)) / (std::log(end) - std::log(begin))
                       : (v - begin) / (end - begin);
  }
  std::vector<double> ticks(int count) const {
    std::vector<double> out;
    if (logarithmic) {
      for (double v = std::pow(10, std::ceil(std::log10(begin) - 1e-9)); v <= end * 1.000001; v *= 10) out.push_back(v);
      if (out.size() < 2) out = {begin, std::sqrt(begin * end), end};
      return out;
    }
    const double step = round_step(end - begin, count);
    for (double v = std::ceil(begin / step - 1e-9) * step; v <= end + step * 1e-6; v += step) out.push_back(v);
    return out;
  }
};

Axis horizontal(const std::vector<Series>& series) {
  double end = 1;
  for (const Series& s : series)
    for (const auto& [x, y] : s.points) end = std::max(end, x);
  return {0, end};
}

Axis vertical(const std::vector<Series>& series, bool logarithmic) {
  std::vector<double> values;
  for (const Series& s : series)
    for (const auto& [x, y] : s.points)
      if (!logarithmic || y > 0) values.push_back(y);
  if (values.empty()) return {0, 1};
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (logarithmic) return {*least * 0.9, *most * 1.1, true};
  // Never so narrow that rounding would keep ticks() from advancing.
  const double margin = std::max({1e-9, (*most > *least ? 1e-6 : 0.05) * std::abs(*most), 0.05 * (*most - *least)});
  return {*least >= 0 ? std::max(0.0, *least - margin) : *least - margin, *most + margin};
}

// Every version's page begins like this, and its style like report_style.
constexpr const char* first_style = "<style>\n\n:root { --ground: ";
constexpr const char* page_head =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";

// As many points of a curve as `most` of up to eight curves, less of more.
std::size_t share_of_points(std::size_t most, std::size_t curves) {
  return curves <= 8 ? most : std::max<std::size_t>(32, 8 * most / curves);
}

// The points of a plot as the page's script reads them.
std::string plot_data(const std::string& title, const std::vector<Series>& series, bool logarithmic,
                      const std::string& by) {
  using Json = nlohmann::ordered_json;
  Json curves = Json::array();
  for (const Series& s : series) {
    Json points = Json::array();
    const std::size_t most = share_of_points(2000, series.size());
    for (const auto& [x, y] : s.dots ? s.points : thinned(s.points, most)) points.push_back({x, y});
    curves.push_back({{"name", s.name}, {"css", s.css_class}, {"dots", s.dots}, {"points", points}});
  }
  const Json plot = {{"title", title}, {"log", logarithmic}, {"by", by}, {"series", curves}};
  std::string out;
  for (char c : plot.dump(-1, ' ', false, Json::error_handler_t::replace))  // no name ends the script element
    out += c == '<' ? "\\u003c" : std::string(1, c);
  return "<script type=\"application/json\">" + out + "</script>";
}

}  // namespace

std::string section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_text(title), content);
}

std::string facts_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string out = "<table class=\"facts\">\n";
  for (const auto& [name, value] : rows)
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", html_text(name), html_text(value));
  return out + "</table>\n";
}

std::string html_page(const std::string& title, const std::string& body, int reload) {
  const std::string name = html_text(title);
  std::string out = fmt::format(
      "{}<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n{}</main>\n<script>{}</script>\n",
      page_head, name, report_style, name, body, report_script);
  if (reload > 0)
    out += fmt::format("<script>setInterval(() => {{ if (!window.zoomed) location.reload(); }}, {});</script>\n",
                       1000 * reload);
  return out + "</body>\n</html>\n";
}

bool is_html_page(const std::string& content) {
  return content.starts_with(page_head) && content.find(first_style) != std::string::npos;
}

std::string html_text(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t count = utf8_length(text, i);
    switch (count == 1 ? text[i] : ' ') {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += fit_for_html(text, i, count) ? text.substr(i, count) : "\xEF\xBF\xBD";
    }
    i += std::max<std::size_t>(1, count);
  }
  return out;
}

std::string data_uri(const std::string& media_type, const std::string& content) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = "data:" + media_type + ";base64,";
  out.reserve(out.size() + content.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < content.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < content.size() ? static_cast<unsigned char>(content[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= content.size() ? digits[bits >> (18 - 6 * j) & 63U] : '=';
  }
  return out;
}

std::string line_plot(const std::string& title, const std::vector<Series>& series, bool logarithmic,
                      const std::string& by) {
  const bool empty = std::all_of(series.begin(), series.end(), [](const Series& s) { return s.points.empty(); });
  if (empty) return "";
  std::vector<Series> drawn = series;
  for (Series& s : drawn) {
    if (!s.dots) s.points = thinned(s.points, share_of_points(400, series.size()));
    if (logarithmic) std::erase_if(s.points, [](const auto& p) { return p.second <= 0; });
  }
  const Axis x = horizontal(drawn), y = vertical(drawn, logarithmic);
  const auto at_x = [&](double v) { return left + (width - left - right) * x.place(v); };
  const auto at_y = [&](double v) { return height - low - (height - low - top) * y.place(v); };
  std::string out = fmt::format(
      "<figure class=\"plot\">\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text x=\"{}\" y=\"18\" "
      "class=\"title\">{}</text>\n",
      width, height, html_text(title), left, html_text(title));
  for (double v : y.ticks(5))
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left,
        at_y(v), width - right, left - 6, at_y(v) + 4, number(v));
  for (double v : x.ticks(5))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", at_x(v), height - 10,
                       v > 0.95 * x.end ? "end" : "middle", number(v));
  double name_x = width - right;
  for (const Series& s : drawn) {
    if (s.points.empty()) continue;
    std::string line;
    for (const auto& [px, py] : s.points) line += fmt::format("{:.1f},{:.1f} ", at_x(px), at_y(py));
    out += fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", s.css_class, line);
    for (const auto& [px, py] : s.points)
      if (s.dots)
        out += fmt::format(
            "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>{} {:.0f}: {:.4g}</title></circle>\n",
            s.css_class, at_x(px), at_y(py), by, px, py);
    if (drawn.size() != 2) continue;
    out += fmt::format("<text x=\"{:.1f}\" y=\"18\" text-anchor=\"end\" class=\"name {}\">{}</text>\n", name_x,
                       s.css_class, html_text(s.name));
    name_x -= 20 + 10 * static_cast<double>(s.name.size());
  }
  return out + "</svg>\n" + plot_data(title, series, logarithmic, by) + "</figure>\n";
}

}  // namespace longstride
