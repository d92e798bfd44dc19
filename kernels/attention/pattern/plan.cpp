#include "kernels/attention/pattern/plan.h"

#include <algorithm>
#include <stdexcept>

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

bool is_window(PartKind kind) { return kind == PartKind::local || kind == PartKind::fixed_block; }

// Turns the parts of one head into passes. Strides, widths and windows beyond n are cut to n, which is the same
// geometry and fits 32 bits.
class HeadPasses {
 public:
  HeadPasses(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head, std::int64_t n)
      : pattern_(pattern), head_(head), n_(static_cast<std::int32_t>(n)), period_(cut(pattern.stride)) {
    const std::vector<PartKind> kinds = parts_of(pattern, layer, heads, head);
    for (PartKind kind : kinds)
      if (is_window(kind)) add_window(kind, kinds.size() > 1);
    for (PartKind kind : kinds)
      if (!is_window(kind)) add_rest(kind);
  }

  std::vector<PassOrder> passes;

 private:
  std::int32_t cut(std::int64_t x) const { return static_cast<std::int32_t>(std::min<std::int64_t>(x, n_)); }
  RowSet natural() const { return {0, n_, n_, n_}; }

  void add_window(PartKind kind, bool merged) {
    const Limit low = kind == PartKind::local ? Limit{cut(window_of(pattern_)) - 1, 0} : Limit{0, period_};
    add_natural({kind, natural(), low, {0, 0}});
    if (merged) high_ = {low.back + 1, low.block};
  }

  void add_rest(PartKind kind) {
    const Limit from_start{n_, 0};
    if (kind == PartKind::dense) return add_natural({kind, natural(), from_start, high_});
    if (kind == PartKind::column) {
      const RowSet column = rows_within({0, 1, period_, 0}, 0, n_);
      passes.push_back({column, period_, {{kind, column, from_start, high_}}});
      return;
    }
    const SubBlock block = sub_block_of(pattern_, head_);
    const RowSet summary = rows_within({cut(block.begin), cut(block.width), period_, 0}, 0, n_);
    add_natural({kind, summary, from_start, high_});
    if (pattern_.summary_inclusive && block.begin > 0)
      add_natural({kind, rows_within({0, 1, period_, 0}, 0, n_), from_start, high_});
  }

  // Parts in natural query order share one pass.
  void add_natural(const Part& part) {
    if (passes.empty()) passes.push_back({natural(), 1, {}});
    passes.back().parts.push_back(part);
  }

  const PatternConfig& pattern_;
  std::int64_t head_;
  std::int32_t n_, period_;
  Limit high_;  // high limit of the part merged with the window: i, or just below the window
};

}  // namespace

std::shared_ptr<const AttentionPlan> make_plan(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads,
                                               std::int64_t n, TileShape tile) {
  if (n < 1 || n > longest_plan)
    throw std::invalid_argument("attention over " + std::to_string(n) + " positions, but from 1 to " +
                                std::to_string(longest_plan) + " can be planned");
  const std::string problem = problem_of(pattern, heads, layer + 1);
  if (!problem.empty()) throw std::invalid_argument(problem);
  auto plan = std::make_shared<AttentionPlan>();
  plan->n = static_cast<std::int32_t>(n);
  plan->tile = tile;
  std::vector<std::vector<PassOrder>> seen;
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<PassOrder> orders = HeadPasses(pattern, layer, heads, head, n).passes;
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
  return plan;
}

bool every_query_sees_a_key(const AttentionPlan& plan) {
  const auto sees = [&](const Pass& pass, const Part& part) {
    const bool to_itself = part.low.back >= 0 && part.high == Limit{};
    const bool from_start = part.low.back >= plan.n;
    return to_itself &&
           (part.keys == pass.queries || (from_start && part.keys.length > 0 && part.keys.base <= pass.queries.base));
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
