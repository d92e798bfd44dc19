#include "framework/train/metrics/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

bool progress_shown = true;

int columns_of(std::FILE* out) {
  winsize window = {};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "unknown time";
  const auto s = static_cast<std::int64_t>(std::min(seconds, 1e15) + 0.5);
  const std::int64_t minutes = (s + 30) / 60;
  if (s < 100) return fmt::format("{} s", s);
  if (minutes < 60) return fmt::format("{} min", minutes);
  if (minutes < 24 * 60) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  const std::int64_t hours = (minutes + 30) / 60;
  return fmt::format("{} d {} h", thousands(hours / 24), hours % 24);
}

std::string rate_text(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "unknown";
  const auto scaled = [&](double unit, const char* letter) {
    const double value = per_second / unit;
    return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, letter);
  };
  if (per_second < 999.5) return fmt::format("{:.0f}", per_second);
  if (per_second < 999.5e3) return scaled(1e3, "k");
  if (per_second < 999.5e6) return scaled(1e6, "M");
  return scaled(1e9, "G");
}

std::string progress_text(const Progress& p, int width) {
  const std::vector<std::string> pieces = {
      fmt::format("step {}/{}", thousands(p.step), thousands(p.steps)),
      fmt::format("{:.3f} {}", p.figure, p.unit),
      fmt::format("{} tokens/s", rate_text(p.tokens_per_second)),
      p.mfu ? fmt::format("MFU {:.1f}%", *p.mfu * 100) : "",
      p.seconds_left ? fmt::format("{} left", duration_text(*p.seconds_left)) : "time left unknown",
  };
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  std::string line = pieces.front().substr(0, columns);
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].empty()) continue;
    if (line.size() + 3 + pieces[i].size() > columns) break;
    line += " | " + pieces[i];
  }
  return line;
}

void show_no_progress() { progress_shown = false; }
bool progress_is_shown() { return progress_shown; }

ProgressLine::ProgressLine(std::FILE* out, double seconds_between_lines)
    : out_(out), terminal_(::isatty(::fileno(out)) == 1), interval_(terminal_ ? 0.1 : seconds_between_lines) {}

ProgressLine::~ProgressLine() { finish(); }

bool ProgressLine::due(std::chrono::steady_clock::time_point now) const {
  return !drawn_at_ || std::chrono::duration<double>(now - *drawn_at_).count() >= interval_;
}

void ProgressLine::update(const Progress& progress) {
  if (!progress_shown) return;
  last_ = progress;
  pending_ = true;
  const auto now = std::chrono::steady_clock::now();
  if (!due(now)) return;
  draw();
  drawn_at_ = now;
}

void ProgressLine::draw() {
  pending_ = false;
  if (terminal_) {
    // One column stays free because a full line would wrap. The escape sequence erases the rest of an older, longer
    // line.
    std::fputs(fmt::format("\r{}\x1b[K", progress_text(*last_, columns_of(out_) - 1)).c_str(), out_);
    open_ = true;
  } else {
    std::fputs((progress_text(*last_, 1000) + "\n").c_str(), out_);
  }
  std::fflush(out_);
}

void ProgressLine::finish() {
  if (pending_) draw();
  if (open_) std::fputs("\n", out_);
  open_ = false;
  std::fflush(out_);
}

}  // namespace longstride
