// The progress of a long run: one line that is redrawn on a terminal, plain lines in a log. For one rank.
//   step 1,200/73,000 | 2.131 bits/byte | 10.2k tokens/s | MFU 31.2% | 5 h 12 min left
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace longstride {

// --quiet: whether lines of progress, and lines that name what was written, are shown at all. For this process.
void show_no_progress();
bool progress_is_shown();

struct Progress {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double figure = 0;  // the objective's shown one
  double tokens_per_second = 0;
  std::optional<double> mfu;           // model FLOP utilisation, 0 to 1; absent: not shown
  std::optional<double> seconds_left;  // absent: not known yet
  std::string unit = {};               // the figure's
};

// The line, at most `width` columns: items that do not fit are dropped whole, from the right.
std::string progress_text(const Progress& progress, int width);
// "45 s", "12 min", "5 h 12 min", "3 d 4 h"
std::string duration_text(double seconds);
// "950", "10.2k", "1.46M"
std::string rate_text(double per_second);

class ProgressLine {
 public:
  // On a terminal, redrawn at most ten times a second; elsewhere a line at most every `seconds_between_lines`.
  explicit ProgressLine(std::FILE* out, double seconds_between_lines = 10);
  ~ProgressLine();  // leaves the last line on the terminal
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const Progress& progress);
  // Call at the end of the run and before printing anything else, which would overwrite the line. Writes the last
  // update if the rate limit has held it back.
  void finish();

 private:
  bool due(std::chrono::steady_clock::time_point now) const;
  void draw();

  std::FILE* out_;
  bool terminal_;
  double interval_;  // seconds
  std::optional<Progress> last_;
  std::optional<std::chrono::steady_clock::time_point> drawn_at_;
  bool pending_ = false;  // last_ has not been drawn yet
  bool open_ = false;     // the terminal shows a line without its newline
};

}  // namespace longstride
