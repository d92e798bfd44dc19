#include "kernels/attention/pattern/pattern.h"

#include <algorithm>

namespace longstride::kernels {

namespace {

bool uses(const PatternConfig& pattern, PartKind kind) {
  return std::find(pattern.parts.begin(), pattern.parts.end(), kind) != pattern.parts.end();
}

// The first part that needs a stride, as text; empty when none does.
std::string needs_stride(const PatternConfig& pattern) {
  for (PartKind kind : pattern.parts)
    if (kind != PartKind::dense && kind != PartKind::first && (kind != PartKind::local || pattern.window == 0))
      return name_of(kind);
  return "";
}

std::string merge_problem(const PatternConfig& pattern) {
  if (pattern.parts.size() == 1) return "";
  std::string list;
  for (PartKind kind : pattern.parts) list += std::string(list.empty() ? "" : ", ") + name_of(kind);
  const bool window = uses(pattern, PartKind::local) || uses(pattern, PartKind::fixed_block);
  const bool rest =
      uses(pattern, PartKind::column) || uses(pattern, PartKind::fixed_summary) || uses(pattern, PartKind::first);
  if (pattern.parts.size() == 2 && window && rest) return "";
  return "attention.parts is [" + list +
         "], but merged takes a single part, or one window (local, fixed_block) and one of column, fixed_summary and "
         "first";
}

std::string window_problem(const PatternConfig& pattern) {
  if (pattern.direction == Direction::past || window_of(pattern) % 2 == 1) return "";
  return "attention.window is " + std::to_string(pattern.window) + (pattern.window == 0 ? ", stride + 1 = " : ", ") +
         (pattern.window == 0 ? std::to_string(window_of(pattern)) + ", " : "") +
         "but direction both needs an odd number of keys, as many behind a position as ahead";
}

std::string summary_problem(const PatternConfig& pattern, std::int64_t heads) {
  const std::size_t count = pattern.summary.size();
  if (count == 0)
    return "attention.summary is not set, but fixed_summary needs the number of summary positions in each block";
  if (count != 1 && count != static_cast<std::size_t>(heads))
    return "attention.summary lists " + std::to_string(count) + " widths, but must be one width or one for each of " +
           std::to_string(heads) + " heads";
  for (std::int64_t c : pattern.summary) {
    if (c < 1) return "attention.summary is " + std::to_string(c) + ", but must be at least 1";
    if (c > pattern.stride)
      return "attention.summary is " + std::to_string(c) + ", but must be at most the stride " +
             std::to_string(pattern.stride);
  }
  return "";
}

}  // namespace

const char* name_of(PartKind kind) {
  switch (kind) {
    case PartKind::dense:
      return "dense";
    case PartKind::local:
      return "local";
    case PartKind::column:
      return "column";
    case PartKind::fixed_block:
      return "fixed_block";
    case PartKind::fixed_summary:
      return "fixed_summary";
    case PartKind::first:
      return "first";
  }
  return "?";
}

std::string problem_of(const PatternConfig& pattern, std::int64_t heads, std::int64_t layers) {
  if (heads < 1) return "heads is " + std::to_string(heads) + ", but must be at least 1";
  if (layers < 1) return "layers is " + std::to_string(layers) + ", but must be at least 1";
  if (pattern.parts.empty())
    return "attention.parts is empty, but must name at least one of dense, local, column, fixed_block, fixed_summary, "
           "first";
  if (pattern.stride < 0)
    return "attention.stride is " + std::to_string(pattern.stride) + ", but must be a positive number of positions";
  if (pattern.stride == 0 && !needs_stride(pattern).empty())
    return "attention.stride is 0, but " + needs_stride(pattern) + " needs a positive number of positions";
  if (pattern.window < 0)
    return "attention.window is " + std::to_string(pattern.window) +
           ", but must be a positive number of keys, or 0 for stride + 1";
  if (pattern.integration == Integration::multihead && static_cast<std::int64_t>(pattern.parts.size()) > heads)
    return "attention.parts lists " + std::to_string(pattern.parts.size()) + " parts, but multihead has only " +
           std::to_string(heads) + (heads == 1 ? " head" : " heads") + " to give them to";
  if (pattern.integration == Integration::merged) {
    const std::string problem = merge_problem(pattern);
    if (!problem.empty()) return problem;
  }
  if (uses(pattern, PartKind::local))
    if (const std::string problem = window_problem(pattern); !problem.empty()) return problem;
  if (uses(pattern, PartKind::first) && pattern.first < 1)
    return "attention.first is " + std::to_string(pattern.first) +
           ", but the part first needs a positive number of keys";
  return uses(pattern, PartKind::fixed_summary) ? summary_problem(pattern, heads) : "";
}

std::int64_t window_of(const PatternConfig& pattern) {
  return pattern.window > 0 ? pattern.window : pattern.stride + 1;
}

Sides window_sides(const PatternConfig& pattern) {
  const std::int64_t others = window_of(pattern) - 1;
  return pattern.direction == Direction::past ? Sides{others, 0} : Sides{others / 2, others / 2};
}

std::vector<PartKind> parts_of(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads,
                               std::int64_t head) {
  const auto count = static_cast<std::int64_t>(pattern.parts.size());
  switch (pattern.integration) {
    case Integration::interleaved:
      return {pattern.parts[static_cast<std::size_t>(layer % count)]};
    case Integration::multihead:
      return {pattern.parts[static_cast<std::size_t>(head * count / heads)]};
    case Integration::merged:
      break;
  }
  return pattern.parts;
}

SubBlock sub_block_of(const PatternConfig& pattern, std::int64_t head) {
  const std::int64_t c = pattern.summary[pattern.summary.size() == 1 ? 0 : static_cast<std::size_t>(head)];
  const std::int64_t s = pattern.distinct_heads ? head % (pattern.stride / c) : 0;
  return {pattern.stride - (s + 1) * c, c};
}

bool allowed(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head, std::int64_t i,
             std::int64_t j) {
  if (j < 0 || (j > i && pattern.direction == Direction::past)) return false;
  const std::int64_t l = pattern.stride;
  for (PartKind kind : parts_of(pattern, layer, heads, head)) {
    switch (kind) {
      case PartKind::dense:
        return true;
      case PartKind::local:
        if (window_sides(pattern).hold(i - j)) return true;
        break;
      case PartKind::column:
        if ((i - j) % l == 0) return true;
        break;
      case PartKind::fixed_block:
        if (i / l == j / l) return true;
        break;
      case PartKind::fixed_summary: {
        const SubBlock block = sub_block_of(pattern, head);
        if (block.begin <= j % l && j % l < block.begin + block.width) return true;
        if (pattern.summary_inclusive && j % l == 0) return true;
        break;
      }
      case PartKind::first:
        if (j < pattern.first) return true;
        break;
    }
  }
  return false;
}

}  // namespace longstride::kernels
