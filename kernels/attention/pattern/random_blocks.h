// Lists of key blocks that are drawn once for every head (Zaheer et al. 2020, BigBird), with those that every head
// reads: the window's, and global blocks at both ends of a row, which read all blocks and which all blocks read.
//
// The balanced draw is `random` permutations of the blocks between the global ones, each without a pair that the window
// or an earlier permutation has: every block reads `random` blocks and is read by as many. The window goes around here,
// so that the first and the last block are neighbours: as many blocks are left to each, and a permutation always
// exists. The published draw is that of the released code, with its faults: it knows only blocks of the first 1,024
// positions, some blocks are drawn more often than others, and the last two rows may draw what their window has (such a
// block counts once here, twice in the released code).
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/attention/pattern/pattern.h"

namespace longstride::kernels {

// True if the plan of a layer is one dense part that lists restrict.
bool has_lists(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads);
constexpr std::int64_t blocks_in(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

// Blocks that can be drawn for each of `blocks`; fewer than `random`: only these are.
std::int64_t most_random_blocks(const PatternConfig& pattern, std::int64_t blocks);

// The key blocks that each block of queries sees, in increasing order: the drawn ones, and all. blocks: in a sequence.
using KeyBlocks = std::vector<std::vector<std::int32_t>>;
KeyBlocks drawn_blocks(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks);
KeyBlocks key_blocks(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks);

// key_blocks() of all heads, one after another, as BlockLists has them: (heads, blocks + 1) and (heads, entries),
// entries of the longest.
struct ListsOfHeads {
  std::int64_t entries = 0;
  std::vector<std::int32_t> key_begin, keys;
};
ListsOfHeads lists_of_heads(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t blocks);

}  // namespace longstride::kernels
