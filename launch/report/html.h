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

// A heading and what is below it; empty if there is nothing below.
std::string section(const std::string& title, const std::string& content);
// A table of two columns, names and values.
std::string facts_table(const std::vector<std::pair<std::string, std::string>>& rows);
// The whole page. `reload`: seconds after which a browser reads it again, unless its reader has zoomed in; 0: never.
std::string html_page(const std::string& title, const std::string& body, int reload);

// True if a file with this content is such a page, of this version or an earlier one.
bool is_html_page(const std::string& content);

struct Series {
  std::string name, css_class;  // classes of the page's style sheet: a colour "a" to "h", dashes "p1" to "p3"
  std::vector<std::pair<double, double>> points;
  bool dots = false;  // a mark at every point
};

// Curves over steps, or over another axis named `by`, as inline SVG: at most about 400 points per curve (means of
// neighbouring points), axes with round numbers; and their points, at most about 2,000 per curve, for the page's
// script; fewer if there are more than eight curves. `logarithmic`: of the vertical axis. Up to two curves are named in
// the drawing. Empty if there are no points.
std::string line_plot(const std::string& title, const std::vector<Series>& series, bool logarithmic = false,
                      const std::string& by = "step");

}  // namespace longstride
