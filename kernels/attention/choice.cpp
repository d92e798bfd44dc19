#include "kernels/attention/choice.h"

#include <algorithm>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/joined_part.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"
#include "kernels/attention/sm90/general/shares.h"

namespace longstride::kernels {
namespace {

using namespace cuda::sm90;

bool takes_plan(const AttentionPlan& plan) {
  for (int number = 0; number < passes_in(plan); ++number) {
    Geometry geometry;
    if (!geometry_of(plan, number, geometry)) return false;
    RowSetKinds kinds;
    for (int p = 0; p < geometry.passes; ++p) {
      const PassGeometry& pass = geometry.pass[p];
      if (kinds.number_of(pass.queries) == RowSetKinds::most) return false;
      for (int i = 0; i < pass.parts; ++i)
        if (kinds.number_of(pass.part[i].keys) == RowSetKinds::most) return false;
    }
  }
  return true;
}

// Labels, and other queries than keys: of heads of up to 64, whose queries and keys are all rows in natural order.
bool takes_labels(const AttentionSizes& sizes) {
  const auto all = [](const RowSet& rows) { return rows.base == 0 && rows.run >= rows.period; };
  const AttentionPlan& plan = *sizes.plan;
  return std::max(sizes.key_size, sizes.value_size) <= 64 && !sizes.has_lists && !sizes.mixed_labels &&
         passes_in(plan) == 1 && plan.queries > 1 &&
         std::all_of(plan.passes.begin(), plan.passes.end(),
                     [&](const Pass& pass) { return pass.classes == 1 && all(pass.queries); }) &&
         std::all_of(plan.parts.begin(), plan.parts.end(), [&](const Part& part) { return all(part.keys); });
}

bool takes(const AttentionSizes& sizes) {
  const bool is_16_bit = sizes.dtype == Dtype::bf16 || sizes.dtype == Dtype::f16;
  return sizes.path != AttentionPath::portable && is_16_bit && sm90_takes_head(sizes.key_size) &&
         sm90_takes_head(sizes.value_size) && (sizes.is_plain() || takes_labels(sizes)) && takes_plan(*sizes.plan);
}

// Heads of one group are told apart by bounds of their own.
bool takes_one_query(const AttentionSizes& sizes, cuda::portable::OneQueryPlan& plan) {
  const bool is_16_bit = sizes.dtype == Dtype::bf16 || sizes.dtype == Dtype::f16;
  return sizes.path == AttentionPath::automatic && is_16_bit && !sizes.has_lists && sizes.labels == 0 &&
         std::max(sizes.key_size, sizes.value_size) <= 128 && sizes.plan->n > 1 &&
         plan.find(*sizes.plan, sizes.batch, sizes.key_heads > 0 ? sizes.key_heads : std::ssize(sizes.plan->heads),
                   sizes.bounds <= sizes.batch);
}

// The only pass of every head, if they have one.
bool find_pass(const AttentionPlan& plan, Geometry& geometry) {
  return passes_in(plan) == 1 && geometry_of(plan, 0, geometry);
}

// The band of a plan whose heads all have one part, whose keys are the queries' row set, however wide.
bool find_band(const AttentionPlan& plan, BandPlan& band) {
  Geometry geometry;
  if (!find_pass(plan, geometry) || geometry.passes != 1) return false;
  const PassGeometry& pass = geometry.pass[0];
  const Part& part = pass.part[0];
  if (pass.parts != 1 || !(part.keys == pass.queries) || !(part.high == Limit{})) return false;
  const bool natural = part.keys.run >= part.keys.period;
  if (part.low.block > 0 && (!natural || part.low.back != 0)) return false;
  band.set = part.keys;
  band.classes = pass.classes;
  band.n = plan.n;
  band.heads = geometry.heads;
  band.shape.block = part.low.block;
  band.shape.window = std::min(part.low.back / (natural ? 1 : part.keys.period) + 1, part.keys.length);
  const std::int32_t tiles = tiles_in(band.set.length, band_rows), block = band.shape.block;
  if (block <= 0)
    band.reach = std::min((band.shape.window + 2 * band_rows - 2) / band_rows, tiles);
  else
    band.reach = std::min(tiles_in(block, band_rows) + (block % band_rows == 0 ? 0 : 1), tiles);
  return true;
}

std::int32_t most_forward_reach(const AttentionSizes& sizes) {
  const std::int64_t larger = std::max(sizes.key_size, sizes.value_size);
  return larger > 64 ? most_large_reach : larger > 32 ? most_shared_reach : most_reach;
}

// The head size of the kernels that take turns; they pad smaller heads.
std::int32_t padded_head(const AttentionSizes& sizes) {
  const std::int64_t larger = std::max(sizes.key_size, sizes.value_size);
  return larger <= 32 ? 32 : larger <= 64 ? 64 : 128;
}

// A block per short class is faster than turns if at least this share of the blocks' time is busy.
constexpr double least_busy = 0.6;
double busy_with_classes(std::int64_t classes) {
  const std::int64_t waves = (classes + long_band_blocks - 1) / long_band_blocks;
  return static_cast<double>(classes) / static_cast<double>(std::max<std::int64_t>(waves, 1) * long_band_blocks);
}

LongBandPlan long_band_of(const AttentionSizes& sizes, const BandPlan& band) {
  LongBandPlan plan;
  plan.band = band;
  plan.head = padded_head(sizes);
  plan.classes = sizes.batch * band.heads * band.classes;
  const bool is_short = band.set.length <= short_class && plan.head <= long_band_head;
  const bool idles = sizes.path != AttentionPath::sm90 && busy_with_classes(plan.classes) < least_busy;
  plan.in_turns = !is_short || idles || sizes.bounds > 0;
  if (plan.in_turns) lay_out_turns(plan);
  return plan;
}

// True if a pass is own blocks and summary rows of earlier ones.
bool is_joined(const PassGeometry& pass, std::int32_t n) {
  if (pass.parts != 2 || pass.classes != 1) return false;
  const Part &block = pass.part[0], &rest = pass.part[1];
  const RowSet& rows = rest.keys;
  const std::int32_t l = block.low.block;
  return continues(rest, block) && block.low.back == 0 && l > 0 && is_summary(rows) && rows.period == l &&
         rows.base + rows.run <= l && rest.low.back >= n && n >= l;
}

// False for other patterns, and if heads have several widths.
bool find_joined(const AttentionSizes& sizes, JoinedPlan& plan) {
  Geometry geometry;
  if (!find_pass(*sizes.plan, geometry)) return false;
  const RowSet& summary = geometry.pass[0].part[1].keys;
  for (std::int32_t p = 0; p < geometry.passes; ++p)
    if (!is_joined(geometry.pass[p], geometry.n) || !RowSetKinds::same(geometry.pass[p].part[1].keys, summary))
      return false;
  for (std::int32_t head = 0; head < geometry.heads; ++head)
    plan.first[head] = geometry.pass[geometry.pass_of[head]].part[1].keys.base;
  plan.summary = summary;
  plan.in_pieces = needs_pieces(geometry);
  plan.turns.band = {.set = geometry.pass[0].queries,
                     .shape = {.window = 0, .block = geometry.pass[0].part[0].low.block},
                     .n = geometry.n,
                     .classes = 1,
                     .heads = geometry.heads};
  plan.turns.classes = sizes.batch * geometry.heads;
  plan.turns.in_turns = true;
  // Pieces need rows of 128 bytes (general/load_pieces.cuh).
  plan.turns.head = plan.in_pieces ? std::max(padded_head(sizes), 64) : padded_head(sizes);
  plan.lay_out();
  return true;
}

std::size_t delta_bytes(const AttentionSizes& sizes) {
  constexpr std::size_t line = 256;
  const auto rows = static_cast<std::size_t>(sizes.batch * sizes.plan->queries * std::ssize(sizes.plan->heads));
  return (rows * sizeof(float) + line - 1) / line * line;
}

// Products, and in a backward pass sums like them, of every share, and those of chunks of rows.
std::size_t label_bytes(const AttentionSizes& sizes, bool backward, std::int32_t shares = 1) {
  const std::int64_t heads = sizes.batch * std::ssize(sizes.plan->heads), n_q = sizes.plan->queries;
  const std::int64_t chunks = label_chunks(sizes.plan->queries) * sizes.key_size;
  return static_cast<std::size_t>(heads * sizes.labels * (backward ? (1 + shares) * n_q + chunks : n_q)) *
         sizeof(float);
}

constexpr std::size_t in_lines(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// Few queries that see many keys, and few keys that many queries see.
void share_tiles(const AttentionSizes& sizes, AttentionChoice& choice, bool backward) {
  const AttentionPlan& plan = *sizes.plan;
  std::int32_t keys = 0;
  for (const Part& part : plan.parts)
    if (may_share_queries(plan, part)) keys = std::max(keys, part.keys.length);
  // Only the kernels of labels share: heads of up to 64, rows in boxes.
  const bool in_boxes =
      std::all_of(plan.parts.begin(), plan.parts.end(), [&](const Part& part) { return has_boxes(part, plan.n); });
  if (keys == 0 || !in_boxes || sizes.has_lists || std::max(sizes.key_size, sizes.value_size) > 64) return;
  constexpr std::int32_t query_rows = 192, key_rows = 128, columns = 64;  // a block's, and a padded head's
  const std::int64_t heads = sizes.batch * std::ssize(plan.heads);
  if (plan.queries != plan.n) choice.query_shares = shares_of(heads * tiles_in(plan.queries, query_rows), plan.n);
  const std::int64_t of_queries = choice.query_shares * heads * plan.queries;
  std::int64_t bytes = choice.query_shares > 1 ? of_queries * (2 * sizes.value_size + 4) : 0;
  if (backward) {
    choice.key_shares = shares_of(heads * tiles_in(keys, key_rows), plan.queries);
    const std::int64_t of_keys = choice.key_shares * heads * keys;
    bytes = std::max(choice.query_shares > 1 ? 4 * columns * of_queries : 0,
                     choice.key_shares > 1 ? 2 * 4 * columns * of_keys : 0);
  }
  choice.share_bytes = static_cast<std::size_t>(bytes);
}

template <class Args>
AttentionSizes sizes_of(const Args& args) {
  return {args.plan,
          args.q.size(0),
          args.q.size(3),
          args.v.size(3),
          args.q.dtype(),
          args.path,
          args.bounds.given() ? args.bounds.begin.size(0) * args.bounds.begin.size(1) : 0,
          args.bounds.documents,
          args.lists.given(),
          args.labels.count(),
          args.k.size(2),
          args.labels.from_end || (args.labels.clip > 0 && args.labels.key_groups.given())};
}

// Heads whose equal blocks of whole tiles see one block each: `seen`, where keys are rotated.
bool find_rotation(const Geometry& geometry, Part& seen, KeyRotation& rotation) {
  const std::int32_t length = seen.low.block;
  if (length <= 0 || length % band_rows != 0 || geometry.n % length != 0) return false;
  for (std::int32_t head = 0; head < geometry.heads; ++head) {
    const PassGeometry& pass = geometry.pass[geometry.pass_of[head]];
    const Part& last = pass.part[pass.parts - 1];  // the block that no wrap brings before the own one
    if (last.kind != PartKind::shifted_block) return false;
    rotation.tiles[head] = -last.low.back / band_rows;
  }
  seen.low = {0, length};
  seen.high = {1 - length, length};
  return true;
}

// A window that looks ahead, or is clamped by what no closed form says.
bool find_intervals(const AttentionSizes& sizes, IntervalPlan& plan) {
  Geometry geometry;
  if (sizes.has_lists || !find_pass(*sizes.plan, geometry)) return false;
  PassGeometry pass = geometry.pass[0];
  Part& part = pass.part[0];
  if (geometry.passes > 1 || pass.parts > 1) {
    if (sizes.bounds > 0 || !find_rotation(geometry, part, plan.rotation)) return false;
    pass.parts = 1;
  }
  const bool natural = part.keys.run >= part.keys.period && part.keys.base == 0 && part.keys.length == geometry.n;
  if (pass.parts != 1 || pass.classes != 1 || !natural || !(part.keys == pass.queries)) return false;
  plan.intervals = {.low = part.low, .high = part.high, .n = geometry.n};
  plan.bounds = sizes.bounds;
  plan.by_documents = sizes.by_documents;
  plan.turns.band = {
      .set = part.keys, .shape = {.window = geometry.n}, .n = geometry.n, .classes = 1, .heads = geometry.heads};
  plan.turns.classes = sizes.batch * geometry.heads;
  plan.turns.in_turns = true;
  plan.turns.head = padded_head(sizes);
  plan.lay_out();
  return true;
}

// Backward kernels that take turns clamp queries to documents, but visit the tiles of other ones that the pattern
// allows: many with wider windows, or summaries of longer rows. The general kernels visit none.
constexpr std::int32_t widest_with_documents = 2048, longest_with_documents = 16384;

bool clamps_band(const AttentionSizes& sizes, const BandPlan& band) {
  return sizes.bounds == 0 ||
         (sizes.by_documents && std::max(band.shape.window, band.shape.block) <= widest_with_documents);
}
bool clamps_joined(const AttentionSizes& sizes) {
  return sizes.bounds == 0 || (sizes.by_documents && sizes.plan->n <= longest_with_documents);
}

}  // namespace

AttentionChoice choose_forward(const AttentionSizes& sizes) {
  AttentionChoice choice;
  choice.sums_bytes = choice.label_bytes = label_bytes(sizes, false);
  if (takes_one_query(sizes, choice.one_query)) {
    choice.family = AttentionFamily::one_query;
    choice.sums_bytes = choice.one_query.scratch_bytes(sizes.batch, sizes.value_size);
    return choice;
  }
  if (!takes(sizes)) return choice;
  const bool is_narrow = sizes.is_plain() && !sizes.has_lists && (sizes.bounds == 0 || sizes.by_documents) &&
                         find_band(*sizes.plan, choice.band) && (sizes.bounds == 0 || choice.band.classes == 1) &&
                         choice.band.reach <= most_forward_reach(sizes);
  choice.family = is_narrow ? AttentionFamily::band : AttentionFamily::general;
  share_tiles(sizes, choice, false);
  if (choice.share_bytes > 0) choice.sums_bytes = in_lines(choice.label_bytes) + choice.share_bytes;
  return choice;
}

AttentionChoice choose_backward(const AttentionSizes& sizes) {
  AttentionChoice choice;
  choice.delta_bytes = delta_bytes(sizes);
  choice.sums_bytes = choice.label_bytes = label_bytes(sizes, true);
  if (!takes(sizes)) return choice;
  const auto be_general = [&] {
    choice.family = AttentionFamily::general;
    share_tiles(sizes, choice, true);
    choice.sums_bytes = choice.label_bytes = label_bytes(sizes, true, choice.query_shares);
    if (!sizes.by_documents) choice.sums_bytes += cuda::bounds_from_keys_bytes(sizes.bounds, sizes.plan->n);
    if (choice.share_bytes > 0) choice.sums_bytes = in_lines(choice.sums_bytes) + choice.share_bytes;
  };
  if (!sizes.is_plain()) {
    be_general();
    return choice;
  }
  const bool is_band = !sizes.has_lists && find_band(*sizes.plan, choice.band) && clamps_band(sizes, choice.band);
  if (is_band && sizes.bounds == 0 && choice.band.reach <= most_reach && sizes.key_size <= widest_band_key &&
      !sizes.shares_keys()) {
    choice.family = AttentionFamily::band;
  } else if (is_band) {
    choice.long_band = long_band_of(sizes, choice.band);
    choice.family = choice.long_band.in_turns ? AttentionFamily::turns : AttentionFamily::classes;
    choice.sums_bytes = choice.long_band.scratch_bytes();
  } else if (clamps_joined(sizes) && find_joined(sizes, choice.joined)) {
    choice.family = AttentionFamily::joined;
    choice.sums_bytes = choice.joined.turns.scratch_bytes();
  } else if (find_intervals(sizes, choice.intervals)) {
    choice.family = AttentionFamily::intervals;
    choice.sums_bytes = choice.intervals.scratch_bytes();
  } else {
    be_general();
  }
  return choice;
}

AttentionChoice choose(const AttentionArgs& args) { return choose_forward(sizes_of(args)); }
AttentionChoice choose(const AttentionBackwardArgs& args) { return choose_backward(sizes_of(args)); }

}  // namespace longstride::kernels
