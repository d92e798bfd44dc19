#include "kernels/attention/pattern/plan.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "kernels/attention/pattern/random_blocks.h"

namespace longstride::kernels {

namespace {

// The geometry of a pass.
struct PassOrder {
  RowSet queries;
  std::int32_t classes = 1;
  std::vector<Part> parts;

  bool operator==(const PassOrder& other) const {
    const auto same = [](const Part& a, const Part& b) {
      return a.kind == b.kind && a.keys == b.keys && a.low == b.low && a.high == b.high;
    };
    return queries == other.queries && classes == other.classes &&
           std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(), same);
  }
};

bool is_window(PartKind kind) {
  return kind == PartKind::local || kind == PartKind::fixed_block || kind == PartKind::block_window;
}

// Turns the parts of one head into passes. Strides, widths and windows beyond the longer of queries and keys are cut to
// it, which is the same geometry and fits 32 bits.
class HeadPasses {
 public:
  HeadPasses(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head,
             const AttentionPlan& plan)
      : pattern_(pattern),
        head_(head),
        n_(plan.n),
        queries_(plan.queries),
        longest_(std::max(n_, queries_)),
        period_(cut(pattern.stride)),
        end_(pattern.direction == Direction::past ? Limit{} : Limit{-longest_, 0}) {
    std::vector<PartKind> kinds = parts_of(pattern, layer, heads, head);
    if (has_lists(pattern, layer, heads)) kinds = {PartKind::dense};  // which lists restrict
    for (PartKind kind : kinds)
      if (is_window(kind)) add_window(kind, kinds.size() > 1);
    for (PartKind kind : kinds)
      if (!is_window(kind)) add_rest(kind);
  }

  std::vector<PassOrder> passes;

 private:
  std::int32_t cut(std::int64_t x) const { return static_cast<std::int32_t>(std::min<std::int64_t>(x, longest_)); }
  static RowSet natural(std::int32_t n) { return {0, n, n, n}; }

  void add_window(PartKind kind, bool merged) {
    Part part{kind, natural(n_), {0, period_}, {}};
    if (kind == PartKind::block_window) {
      const std::int32_t block = cut(pattern_.block);
      part.low = {block, block};
      if (pattern_.direction == Direction::both) part.high = {1 - 2 * block, block};
    } else if (kind == PartKind::local) {
      const Sides sides = window_sides(pattern_);
      part.low = {cut(sides.behind + 1) - 1, 0};
      part.high = {-cut(sides.ahead), 0};
    } else if (pattern_.direction == Direction::both) {
      part.high = {1 - period_, period_};
    }
    add_natural({part});
    if (merged) window_ = part;
  }

  // A rest's parts: without the window's keys, if there is a window.
  std::vector<Part> rest_of(PartKind kind, const RowSet& keys) const {
    const Limit start{longest_, 0};
    if (!window_) return {{kind, keys, start, end_}};
    std::vector<Part> parts = {{kind, keys, start, {window_->low.back + 1, window_->low.block}}};
    if (pattern_.direction == Direction::both)
      parts.push_back({kind, keys, {window_->high.back - 1, window_->high.block}, end_});
    return parts;
  }

  void add_rest(PartKind kind) {
    if (kind == PartKind::dense) return add_natural(rest_of(kind, natural(n_)));
    if (kind == PartKind::first)
      return add_natural(rest_of(kind, rows_within({0, std::min(cut(pattern_.first), n_), n_, 0}, 0, n_)));
    if (kind == PartKind::dilated) return add_dilated();
    if (kind == PartKind::shifted_block) return add_shifted();
    if (kind == PartKind::column) {
      const RowSet column{0, 1, period_, 0};
      passes.push_back({rows_within(column, 0, queries_), period_, rest_of(kind, rows_within(column, 0, n_))});
      return;
    }
    const SubBlock block = sub_block_of(pattern_, head_);
    const RowSet summary = rows_within({cut(block.begin), cut(block.width), period_, 0}, 0, n_);
    add_natural(rest_of(kind, summary));
    if (pattern_.summary_inclusive && block.begin > 0)
      add_natural(rest_of(kind, rows_within({0, 1, period_, 0}, 0, n_)));
  }

  // A window in every residue class.
  void add_dilated() {
    const std::int32_t d = cut(dilation_of(pattern_, head_));
    const auto reach = [&](std::int64_t keys) { return cut(std::min<std::int64_t>(keys, longest_) * d); };
    const Sides sides = window_sides(pattern_);
    const auto rows = [&](std::int32_t n) { return d == 1 ? natural(n) : rows_within({0, 1, d, 0}, 0, n); };
    const Part part{PartKind::dilated, rows(n_), {reach(sides.behind), 0}, {-reach(sides.ahead), 0}};
    passes.push_back({rows(queries_), d, {part}});
  }

  // The blocks behind the own one by the shift, or, those that it takes beyond the last, as many before it.
  void add_shifted() {
    const EvenBlocks blocks(pattern_, longest_);
    const auto length = static_cast<std::int32_t>(blocks.length), count = static_cast<std::int32_t>(blocks.count),
               shift = static_cast<std::int32_t>(shift_of(pattern_, head_) % count);
    const auto behind = [&](std::int32_t by) {
      return Part{PartKind::shifted_block, natural(n_), {-by * length, length}, {1 - (by + 1) * length, length}};
    };
    if (shift > 0) add_natural({behind(shift - count)});
    add_natural({behind(shift)});
  }

  // Parts in natural query order share one pass.
  void add_natural(const std::vector<Part>& parts) {
    if (passes.empty()) passes.push_back({natural(queries_), 1, {}});
    passes.back().parts.insert(passes.back().parts.end(), parts.begin(), parts.end());
  }

  const PatternConfig& pattern_;
  std::int64_t head_;
  std::int32_t n_, queries_, longest_, period_;
  Limit end_;                   // the last key that a rest may see
  std::optional<Part> window_;  // with which a rest is merged
};

// What is left of a head's passes for the query at the last of n positions, which becomes row 0: limits are constants.
std::vector<PassOrder> of_last_query(const std::vector<PassOrder>& passes, std::int32_t n) {
  const std::int32_t last = n - 1;
  std::vector<PassOrder> left;
  for (const PassOrder& pass : passes) {
    const std::int32_t residue = last % pass.classes;
    if (!rows_within(pass.queries, residue, n).holds(last)) continue;
    PassOrder one{{0, 1, 1, 1}, 1, pass.parts};
    for (Part& part : one.parts) {
      if (pass.classes > 1) part.keys = rows_within(part.keys, residue, n);
      part.low = {-part.low.of(last), 0};
      part.high = {-part.high.of(last), 0};
    }
    left.push_back(std::move(one));
  }
  return left;
}

}  // namespace

std::shared_ptr<const AttentionPlan> make_plan(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads,
                                               std::int64_t n, TileShape tile, std::int64_t queries) {
  if (queries == 0) queries = n;
  for (const std::int64_t positions : {n, queries})
    if (positions < 1 || positions > longest_plan)
      throw std::invalid_argument("attention over " + std::to_string(positions) + " positions, but from 1 to " +
                                  std::to_string(longest_plan) + " can be planned");
  const std::string problem = problem_of(pattern, heads, layer + 1);
  if (!problem.empty()) throw std::invalid_argument(problem);
  auto plan = std::make_shared<AttentionPlan>();
  const bool is_last = queries == 1 && n > 1 && pattern.direction == Direction::past;
  if (queries != n && pattern.direction == Direction::past && !is_last)
    throw std::invalid_argument("attention of " + std::to_string(queries) + " queries to " + std::to_string(n) +
                                " keys, but a pattern of the past takes as many queries as keys, or 1, the last; use "
                                "direction both");
  if (queries != n && has_lists(pattern, layer, heads))
    throw std::invalid_argument("attention of " + std::to_string(queries) + " queries to " + std::to_string(n) +
                                " keys, but random_blocks takes as many queries as keys");
  plan->n = static_cast<std::int32_t>(n);
  plan->queries = static_cast<std::int32_t>(is_last ? n : queries);
  plan->tile = tile;
  std::vector<std::vector<PassOrder>> seen;
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<PassOrder> orders = HeadPasses(pattern, layer, heads, head, *plan).passes;
    if (is_last) orders = of_last_query(orders, plan->n);
    const auto twin = std::find(seen.begin(), seen.end(), orders);
    if (twin != seen.end()) {
      plan->heads.push_back(plan->heads[static_cast<std::size_t>(twin - seen.begin())]);
    } else {
      plan->heads.push_back({static_cast<std::int32_t>(plan->passes.size()), static_cast<std::int32_t>(orders.size())});
      for (const PassOrder& order : orders) {
        plan->passes.push_back({order.queries, order.classes, static_cast<std::int32_t>(plan->parts.size()),
                                static_cast<std::int32_t>(order.parts.size())});
        plan->parts.insert(plan->parts.end(), order.parts.begin(), order.parts.end());
      }
    }
    seen.push_back(std::move(orders));
  }
  plan->queries = static_cast<std::int32_t>(queries);
  return plan;
}

bool looks_ahead(const AttentionPlan& plan) {
  return std::any_of(plan.parts.begin(), plan.parts.end(), [](const Part& part) { return part.high.back < 0; });
}

bool every_query_sees_a_key(const AttentionPlan& plan) {
  if (plan.queries != plan.n) return false;
  const auto sees = [&](const Pass& pass, const Part& part) {
    if (part.kind == PartKind::shifted_block) return true;  // one block or another
    const bool to_itself = part.low.back >= 0 && part.high.back <= -std::max(0, part.high.block - 1);
    const bool from_start = part.low.back >= plan.n, to_end = part.high.back <= -plan.n;
    const bool sees_start =
        from_start && part.keys.length > 0 && (to_end || (part.high == Limit{} && part.keys.base <= pass.queries.base));
    return to_itself && (part.keys == pass.queries || sees_start);
  };
  // The classes of a pass shift queries and keys alike.
  const auto covers = [&](const Pass& pass) {
    const bool every_query = pass.classes == pass.queries.period || pass.queries.length == plan.n;
    const std::span<const Part> parts = plan.parts_of(pass);
    return every_query && std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return sees(pass, part); });
  };
  for (std::int64_t head = 0; head < std::ssize(plan.heads); ++head) {
    const std::span<const Pass> passes = plan.passes_of(head);
    if (std::none_of(passes.begin(), passes.end(), covers)) return false;
  }
  return true;
}

std::shared_ptr<const AttentionPlan> PlanCache::get(std::int64_t layer, std::int64_t n) {
  const std::vector<PartKind> parts =
      pattern_.integration == Integration::interleaved ? parts_of(pattern_, layer, heads_, 0) : pattern_.parts;
  std::shared_ptr<const AttentionPlan>& plan = plans_[{parts, n}];
  if (plan == nullptr) plan = make_plan(pattern_, layer, heads_, n);
  return plan;
}

}  // namespace longstride::kernels
