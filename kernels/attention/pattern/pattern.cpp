#include "kernels/attention/pattern/pattern.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/random_blocks.h"

namespace longstride::kernels {

namespace {

constexpr std::int64_t most_blocks = 4096;

// The first part that needs a stride, as text; empty when none does.
std::string needs_stride(const PatternConfig& pattern) {
  for (PartKind kind : pattern.parts)
    if (reads_stride(kind) && (kind != PartKind::local || pattern.window == 0)) return name_of(kind);
  return "";
}

std::string merge_problem(const PatternConfig& pattern) {
  if (pattern.parts.size() == 1) return "";
  std::string list;
  for (PartKind kind : pattern.parts) list += std::string(list.empty() ? "" : ", ") + name_of(kind);
  if (pattern.parts.size() == 2 && uses(pattern, PartKind::block_window) &&
      (uses(pattern, PartKind::first) || uses(pattern, PartKind::random_blocks)))
    return "";
  const bool window = uses(pattern, PartKind::local) || uses(pattern, PartKind::fixed_block);
  const bool rest =
      uses(pattern, PartKind::column) || uses(pattern, PartKind::fixed_summary) || uses(pattern, PartKind::first);
  if (pattern.parts.size() == 2 && window && rest) return "";
  return "attention.parts is [" + list +
         "], but merged takes a single part, or one window (local, fixed_block) and one of column, fixed_summary and "
         "first, or block_window and one of first and random_blocks";
}

std::string window_problem(const PatternConfig& pattern) {
  if (pattern.direction == Direction::past || window_of(pattern) % 2 == 1) return "";
  return "attention.window is " + std::to_string(pattern.window) + (pattern.window == 0 ? ", stride + 1 = " : ", ") +
         (pattern.window == 0 ? std::to_string(window_of(pattern)) + ", " : "") +
         "but direction both needs an odd number of keys, as many behind a position as ahead";
}

std::string number_problem(const char* key, std::int64_t value, PartKind part, const char* what) {
  return value > 0 ? ""
                   : std::string("attention.") + key + " is " + std::to_string(value) + ", but the part " +
                         name_of(part) + " needs a positive number of " + what;
}

std::string dilation_problem(const PatternConfig& pattern, std::int64_t heads) {
  const std::size_t count = pattern.dilation.size();
  if (count != 1 && count != static_cast<std::size_t>(heads))
    return "attention.dilation lists " + std::to_string(count) +
           " distances, but must be one distance or one for each "
           "of " +
           std::to_string(heads) + " heads";
  for (const std::int64_t d : pattern.dilation)
    if (d < 1) return "attention.dilation is " + std::to_string(d) + ", but must be at least 1";
  return "";
}

std::string shifts_problem(const PatternConfig& pattern, std::int64_t heads) {
  if (pattern.direction == Direction::past)
    return "attention.parts has shifted_block, whose blocks lie ahead, but direction is past; use fixed_block";
  if (pattern.blocks < 1 || pattern.blocks > most_blocks)
    return "attention.blocks is " + std::to_string(pattern.blocks) + ", but the part shifted_block needs a number of " +
           "blocks from 1 to " + std::to_string(most_blocks);
  if (std::ssize(pattern.shifts) > pattern.blocks)
    return "attention.shifts has shift " + std::to_string(pattern.shifts.size() - 1) + ", but must be below blocks, " +
           std::to_string(pattern.blocks);
  for (const std::int64_t of_shift : pattern.shifts)
    if (of_shift < 0 || of_shift > heads)
      return "attention.shifts has " + std::to_string(of_shift) + " heads, but must have from 0 to " +
             std::to_string(heads);
  const std::int64_t sum = std::accumulate(pattern.shifts.begin(), pattern.shifts.end(), std::int64_t{0});
  if (sum != heads)
    return "attention.shifts adds up to " + std::to_string(sum) + " heads, but there are " + std::to_string(heads);
  return "";
}

std::string random_problem(const PatternConfig& pattern) {
  const auto is = [](const char* key, std::int64_t value) {
    return std::string("attention.") + key + " is " + std::to_string(value) + ", but ";
  };
  if (pattern.direction == Direction::past)
    return "attention.parts has random_blocks, which lie ahead as well, but direction is past; use column or first";
  if (pattern.integration != Integration::merged)
    return "attention.integration is " +
           std::string(pattern.integration == Integration::multihead ? "multihead" : "interleaved") +
           ", but random_blocks needs one softmax over its blocks and the window's; set it to merged";
  if (pattern.block < 1 || pattern.block % BlockLists::unit != 0)
    return is("block", pattern.block) + "random_blocks needs a multiple of " + std::to_string(BlockLists::unit);
  if (pattern.random < 1) return number_problem("random", pattern.random, PartKind::random_blocks, "blocks");
  if (pattern.draw == BlockDraw::published &&
      (pattern.global_first != 1 || pattern.global_last != 1 || !uses(pattern, PartKind::block_window)))
    return "attention.draw is published, but that draw is of a block_window with one global block at both ends; set "
           "model.global to {first: 1, last: 1}, or draw to balanced";
  return "";
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

bool uses(const PatternConfig& pattern, PartKind kind) {
  return std::find(pattern.parts.begin(), pattern.parts.end(), kind) != pattern.parts.end();
}

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
    case PartKind::block_window:
      return "block_window";
    case PartKind::dilated:
      return "dilated";
    case PartKind::random_blocks:
      return "random_blocks";
    case PartKind::shifted_block:
      return "shifted_block";
  }
  return "?";
}

std::string problem_of(const PatternConfig& pattern, std::int64_t heads, std::int64_t layers) {
  if (heads < 1) return "heads is " + std::to_string(heads) + ", but must be at least 1";
  if (layers < 1) return "layers is " + std::to_string(layers) + ", but must be at least 1";
  if (pattern.parts.empty())
    return "attention.parts is empty, but must name at least one of dense, local, column, fixed_block, fixed_summary, "
           "first, block_window, dilated, random_blocks, shifted_block";
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
  if (uses(pattern, PartKind::dilated) && pattern.window == 0)
    return number_problem("window", 0, PartKind::dilated, "keys");
  if (uses(pattern, PartKind::local) || uses(pattern, PartKind::dilated))
    if (const std::string problem = window_problem(pattern); !problem.empty()) return problem;
  if (uses(pattern, PartKind::dilated))
    if (const std::string problem = dilation_problem(pattern, heads); !problem.empty()) return problem;
  if (uses(pattern, PartKind::shifted_block))
    if (const std::string problem = shifts_problem(pattern, heads); !problem.empty()) return problem;
  if (uses(pattern, PartKind::random_blocks))
    if (const std::string problem = random_problem(pattern); !problem.empty()) return problem;
  if (uses(pattern, PartKind::block_window) && pattern.block < 1)
    return number_problem("block", pattern.block, PartKind::block_window, "positions");
  if (uses(pattern, PartKind::first) && pattern.first < 1)
    return number_problem("first", pattern.first, PartKind::first, "keys");
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

std::int64_t dilation_of(const PatternConfig& pattern, std::int64_t head) {
  return pattern.dilation[pattern.dilation.size() == 1 ? 0 : static_cast<std::size_t>(head)];
}

std::int64_t shift_of(const PatternConfig& pattern, std::int64_t head) {
  std::int64_t shift = 0;
  for (std::int64_t beyond = 0; shift < std::ssize(pattern.shifts) - 1; ++shift) {
    beyond += pattern.shifts[static_cast<std::size_t>(shift)];
    if (head < beyond) break;
  }
  return shift;
}

EvenBlocks::EvenBlocks(const PatternConfig& pattern, std::int64_t n)
    : length((n + pattern.blocks - 1) / pattern.blocks), count((n + length - 1) / length) {}

bool allowed(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head, std::int64_t n,
             std::int64_t i, std::int64_t j) {
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
      case PartKind::block_window:
        if (std::abs(i / pattern.block - j / pattern.block) <= 1) return true;
        break;
      case PartKind::dilated: {
        const std::int64_t d = dilation_of(pattern, head);
        if ((i - j) % d == 0 && window_sides(pattern).hold((i - j) / d)) return true;
        break;
      }
      case PartKind::random_blocks: {
        const KeyBlocks lists = key_blocks(pattern, layer, head, blocks_in(n, pattern.block));
        const auto& list = lists[static_cast<std::size_t>(i / pattern.block)];
        if (std::find(list.begin(), list.end(), j / pattern.block) != list.end()) return true;
        break;
      }
      case PartKind::shifted_block: {
        const EvenBlocks blocks(pattern, n);
        if (j / blocks.length == blocks.seen_by(i, shift_of(pattern, head))) return true;
        break;
      }
    }
  }
  return false;
}

}  // namespace longstride::kernels
