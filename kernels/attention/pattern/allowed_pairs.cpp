// The paper's operation count: |window| + |other part| - |both|, each by closed form or a sum over blocks.
#include <algorithm>

#include "kernels/attention/pattern/pattern.h"

namespace longstride::kernels {

namespace {

std::int64_t triangle(std::int64_t m) { return m * (m + 1) / 2; }

// Queries i in [j, n) with i - j < w, summed over j < n.
std::int64_t band(std::int64_t w, std::int64_t n) {
  const std::int64_t m = std::min(w, n);
  return triangle(m) + (n - m) * m;
}

// The same, summed over keys [begin, end) only.
std::int64_t band(std::int64_t w, std::int64_t n, std::int64_t begin, std::int64_t end) {
  return band(w, n - std::min(begin, n)) - band(w, n - std::min(end, n));
}

// Pairs allowed by both `window` (dense: all pairs) and `kind`.
std::int64_t common_pairs(const PatternConfig& pattern, PartKind window, PartKind kind, std::int64_t head,
                          std::int64_t n) {
  const std::int64_t l = pattern.stride;
  // The window spans w rows, or ends with the key's block.
  const std::int64_t w = window == PartKind::local ? std::min(window_of(pattern), n) : n;
  if (kind == PartKind::column) {
    if (window == PartKind::fixed_block) return n;
    const std::int64_t differences = (w - 1) / l + 1;  // i - j = 0, l, 2l ... below w
    return differences * n - l * triangle(differences - 1);
  }
  const SubBlock block = sub_block_of(pattern, head);
  const bool first = pattern.summary_inclusive && block.begin > 0;
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < n; b += l) {
    const std::int64_t end = window == PartKind::fixed_block ? std::min(n, b + l) : n;
    pairs += band(w, end, b + block.begin, b + block.begin + block.width) + (first ? band(w, end, b, b + 1) : 0);
  }
  return pairs;
}

std::int64_t window_pairs(const PatternConfig& pattern, PartKind window, std::int64_t n) {
  const std::int64_t l = pattern.stride;
  if (window == PartKind::fixed_block) return n / l * triangle(l) + triangle(n % l);
  return band(window == PartKind::local ? window_of(pattern) : n, n);
}

}  // namespace

std::int64_t allowed_pairs(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head,
                           std::int64_t n) {
  PartKind window = PartKind::dense;
  std::int64_t pairs = 0;
  const std::vector<PartKind> parts = parts_of(pattern, layer, heads, head);
  for (PartKind kind : parts)
    if (kind != PartKind::column && kind != PartKind::fixed_summary) {
      window = kind;
      pairs += window_pairs(pattern, kind, n);
    }
  for (PartKind kind : parts)
    if (kind == PartKind::column || kind == PartKind::fixed_summary) {
      pairs += common_pairs(pattern, PartKind::dense, kind, head, n);
      if (window != PartKind::dense) pairs -= common_pairs(pattern, window, kind, head, n);
    }
  return pairs;
}

}  // namespace longstride::kernels
