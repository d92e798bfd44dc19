// Pieces of a self-contained page.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace longstride {

// Safe for HTML text and attributes: markup is escaped; bytes that are not UTF-8, and control characters, are replaced.
std::string html_text(const std::string& text);
// "data:image/png;base64,...", the content of a file.
std::string data_uri(const std::string& media_type, const std::string& content);

struct Series {
  std::string name, css_class;  // a class of the page's style sheet: "a", "b"
  std::vector<std::pair<double, double>> points;
  bool dots = false;  // a mark at every point
};

// Curves over steps as inline SVG: at most about 400 points per curve (means of neighbouring points), axes with round
// numbers. `logarithmic`: of the vertical axis. Empty if there are no points.
std::string line_plot(const std::string& title, const std::vector<Series>& series, bool logarithmic = false);

}  // namespace longstride
