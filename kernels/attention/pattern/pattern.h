// Which positions may attend to which (Child et al. 2019, section 4, and the released code).
//
// For position i, stride l, window w (keys, itself included; l + 1 unless set), summary width c, first keys g:
//   dense          {j <= i}
//   local          {max(0, i - w + 1) .. i}                                            (A1 strided)
//   column         {j <= i : (i - j) mod l = 0}                                        (A2 strided)
//   fixed_block    {j <= i : floor(j / l) = floor(i / l)}                              (A1 fixed)
//   fixed_summary  {j <= i : j mod l in {l - (s+1)c .. l - sc - 1}}                    (A2 fixed)
//                  s = 0, or h mod floor(l / c) for head h with distinct_heads; with summary_inclusive also j mod l = 0
//   first          {j <= i : j < g}
//   block_window   {j <= i : floor(j / B) >= floor(i / B) - 1}, B positions a block      (Zaheer et al. 2020)
//   dilated        {j <= i : (i - j) mod d = 0 and (i - j) / d < w}, d of the head        (Beltagy et al. 2020)
//   shifted_block  {j : floor(j / L) = (floor(i / L) + s) mod ceil(n / L)}, L = ceil(n / blocks), s of the head
//                  (Qiu et al. 2020; in both directions only)
//   random_blocks  {j : the block of j is in the list of i's}, which are drawn (random_blocks.h; in both directions
//   only)
// In both directions "j <= i" is left out; the window, of odd w, is {i - (w-1)/2 .. i + (w-1)/2}, dilated likewise; and
// a block window has the block behind its own as well.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longstride::kernels {

enum class PartKind : std::uint8_t {
  dense,
  local,
  column,
  fixed_block,
  fixed_summary,
  first,
  block_window,
  dilated,
  random_blocks,
  shifted_block,
};

// The spelling in recipes.
const char* name_of(PartKind kind);

// How the parts of a layer become one attention (Eq. 6 to 8).
//   interleaved: layer k uses part k mod (number of parts)
//   merged: one softmax over the union of the parts
//   multihead: head h of H uses part floor(h * parts / H); the heads are concatenated
enum class Integration : std::uint8_t { interleaved, merged, multihead };

// The positions that a query may see: its own and earlier ones, or all.
enum class Direction : std::uint8_t { past, both };

// How random_blocks draws (random_blocks.h).
enum class BlockDraw : std::uint8_t { balanced, published };

struct PatternConfig {
  Integration integration = Integration::interleaved;
  std::vector<PartKind> parts = {PartKind::dense};
  std::int64_t stride = 0;            // l; needed by column, fixed_block, fixed_summary, and local without a window
  std::int64_t window = 0;            // w; 0: l + 1 (the paper). The released code's choice is l
  std::vector<std::int64_t> summary;  // c: one for all heads, or one per head
  bool distinct_heads = false;
  bool summary_inclusive = false;
  std::int64_t first = 0;              // g
  std::vector<std::int64_t> dilation;  // d: one for all heads, or one per head
  std::int64_t block = 0;              // B
  std::int64_t blocks = 0;             // into which shifted_block divides the positions
  std::vector<std::int64_t> shifts;    // heads with shift 0, 1, ...: those of 0 are the first
  std::int64_t random = 0;             // blocks that random_blocks draws for every block
  BlockDraw draw = BlockDraw::balanced;
  std::int64_t seed = 0;                           // keys the draw
  std::int64_t global_first = 0, global_last = 0;  // global blocks at both ends, with random_blocks
  Direction direction = Direction::past;
};

bool uses(const PatternConfig& pattern, PartKind kind);  // in any part

// Which parts read which keys of a recipe.
constexpr bool reads_stride(PartKind kind) {
  return kind == PartKind::local || kind == PartKind::column || kind == PartKind::fixed_block ||
         kind == PartKind::fixed_summary;
}
constexpr bool reads_window(PartKind kind) { return kind == PartKind::local || kind == PartKind::dilated; }
constexpr bool reads_summary(PartKind kind) { return kind == PartKind::fixed_summary; }
constexpr bool reads_first(PartKind kind) { return kind == PartKind::first; }
constexpr bool reads_dilation(PartKind kind) { return kind == PartKind::dilated; }
constexpr bool reads_block(PartKind kind) { return kind == PartKind::block_window || kind == PartKind::random_blocks; }
constexpr bool reads_random(PartKind kind) { return kind == PartKind::random_blocks; }
constexpr bool reads_shifts(PartKind kind) { return kind == PartKind::shifted_block; }
// True if every query sees itself.
constexpr bool sees_itself(PartKind kind) {
  return kind != PartKind::fixed_summary && kind != PartKind::first && kind != PartKind::shifted_block &&
         kind != PartKind::random_blocks;
}

// Empty if the pattern is valid for this many heads and layers. Otherwise one sentence that begins with the key under
// `model` and its value: "attention.summary is 200, but must be at most the stride 128".
std::string problem_of(const PatternConfig& pattern, std::int64_t heads, std::int64_t layers);

// Properties of a valid pattern: w, the keys of a window on each side of the query, the parts that a head of a layer
// uses, and the first residue and the width of the sub-block through which a head summarises.
std::int64_t window_of(const PatternConfig& pattern);
struct Sides {
  std::int64_t behind = 0, ahead = 0;

  constexpr bool hold(std::int64_t difference) const { return -ahead <= difference && difference <= behind; }
};
Sides window_sides(const PatternConfig& pattern);
std::vector<PartKind> parts_of(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head);
struct SubBlock {
  std::int64_t begin = 0, width = 0;
};
SubBlock sub_block_of(const PatternConfig& pattern, std::int64_t head);
std::int64_t dilation_of(const PatternConfig& pattern, std::int64_t head);
std::int64_t shift_of(const PatternConfig& pattern, std::int64_t head);
// How shifted_block divides n positions: `count` blocks of `length`, the last one of what is left.
struct EvenBlocks {
  std::int64_t length = 1, count = 1;

  EvenBlocks(const PatternConfig& pattern, std::int64_t n);
  std::int64_t seen_by(std::int64_t i, std::int64_t shift) const { return (i / length + shift) % count; }
};

// The brute-force mask, straight from the definitions above: the specification against which tiles are tested, and the
// mask that `longstride show pattern` draws. `layer` matters to interleaved patterns, `head` and `heads` to multihead
// ones and to what heads have of their own; n, the longer of queries and keys, to shifted_block.
bool allowed(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head, std::int64_t n,
             std::int64_t i, std::int64_t j);

// Allowed (i, j) pairs of one head over n keys and as many queries, or another number in both directions, by closed
// form: the paper's operation count.
std::int64_t allowed_pairs(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head,
                           std::int64_t n, std::int64_t queries = 0);

}  // namespace longstride::kernels
