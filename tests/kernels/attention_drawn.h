// Attention drawn by a number: parts, direction, bounds, block lists, other queries than keys, heads that share keys,
// sinks, labels, sizes; on the CPU in f64 and f32, compared with its definition.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/philox.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"
#include "tests/support/as_good_as_naive.h"
#include "tests/support/drawn_lists.h"

namespace longstride::kernels {

class DrawnAttention {
 public:
  explicit DrawnAttention(std::uint64_t number) : number_(number) {
    draw_pattern();
    draw_shape();
    draw_bounds();
    if (block_ > 0)
      lists_.emplace(number_, block_, one_in(2) ? 1 : shape_.batch, one_in(2) ? 1 : shape_.heads, shape_.n_q(),
                     shape_.n);
    draw_labels();
    for (std::int64_t h = one_in(2) ? shape_.heads : 0; h > 0; --h)
      sink_.push_back(static_cast<double>(from(-40, 40)) / 16);
    if (one_in(3)) return;
    do shape_.key_heads = from(1, shape_.heads);
    while (shape_.heads % shape_.key_heads != 0);
  }

  std::string text() const {
    std::string parts;
    for (const PartKind kind : pattern_.parts) parts += std::string(parts.empty() ? "" : ", ") + name_of(kind);
    return "draw " + std::to_string(number_) + ": [" + parts + "]" +
           (pattern_.direction == Direction::both ? " both" : "") + ", stride " + std::to_string(pattern_.stride) +
           ", window " + std::to_string(pattern_.window) + ", " + std::to_string(shape_.n_q()) + " queries, " +
           std::to_string(shape_.n) + " keys, " + std::to_string(shape_.heads) + " heads on " +
           std::to_string(shape_.heads_of_keys()) + ", bounds " + std::to_string(bound_kind_) +
           (sink_.empty() ? "" : ", a sink") + (labels_ == 0 ? "" : ", " + std::to_string(labels_) + " labels") +
           (from_end_ ? " from the end" : "") + (query_groups_.empty() ? "" : " of groups") +
           (lists_ ? ", lists of " + std::to_string(block_) : "");
  }

  void expect_equals_definition() const {
    const AttentionInput in(shape_, Dtype::f32);
    const AttentionResult exact = defined<double>(in);
    AttentionData<double> x(shape_);
    const Parameters<double> gradients = compute(x);
    EXPECT_LT(error_of(gradients.sink, exact.dsink), 1e-12) << "dsink, " << text();
    EXPECT_LT(error_of(gradients.table, exact.dtable), 1e-12) << "dtable, " << text();
    for (const auto& [name, found, expected] : {std::tuple{"o", &x.o, &exact.o},
                                                {"lse", &x.lse, &exact.lse},
                                                {"dq", &x.dq, &exact.dq},
                                                {"dk", &x.dk, &exact.dk},
                                                {"dv", &x.dv, &exact.dv}})
      EXPECT_LT(error_of(*found, *expected), 1e-12) << name << ", " << text();
    expect_single_precision();
  }

 private:
  // Where one pair makes most of an error, chance decides whose is larger: then sums over several inputs are compared.
  void expect_single_precision() const {
    std::map<std::string, ErrorBudget> budgets;
    const auto exceed = [&] {
      return std::any_of(budgets.begin(), budgets.end(), [](const auto& named) { return !named.second.holds(); });
    };
    for (std::uint32_t draw = 0; draw == 0 || (draw < 5 && exceed()); ++draw) add_single_precision(draw, budgets);
    for (const auto& [name, budget] : budgets) budget.expect(name, text());
  }

  void add_single_precision(std::uint32_t draw, std::map<std::string, ErrorBudget>& budgets) const {
    AttentionShape shape = shape_;
    shape.draw = draw;
    const AttentionInput in(shape, Dtype::f32);
    const AttentionResult exact = defined<double>(in), naive = defined<float>(in);
    AttentionData<float> y(shape);
    Parameters<float> gradients = compute(y);
    AttentionResult single;
    for (const auto& [to, from] : {std::pair{&single.o, &y.o},
                                   {&single.lse, &y.lse},
                                   {&single.dq, &y.dq},
                                   {&single.dk, &y.dk},
                                   {&single.dv, &y.dv},
                                   {&single.dsink, &gradients.sink},
                                   {&single.dtable, &gradients.table}})
      to->assign(from->begin(), from->end());
    const auto add = [&](const char* name, const std::vector<double> AttentionResult::*of,
                         const std::vector<double> AttentionResult::*terms) {
      budgets[name].add(single.*of, naive.*of, exact.*of, Dtype::f32, exact.*terms);
    };
    // The definition's terms of o as well: few keys may leave the naive error almost zero.
    add("o", &AttentionResult::o, &AttentionResult::o_terms);
    add("lse", &AttentionResult::lse, &AttentionResult::lse_terms);
    add("dq", &AttentionResult::dq, &AttentionResult::dq_terms);
    add("dk", &AttentionResult::dk, &AttentionResult::dk_terms);
    add("dv", &AttentionResult::dv, &AttentionResult::dv_terms);
    add("dsink", &AttentionResult::dsink, &AttentionResult::dsink_terms);
    if (labels_ > 0) add("dtable", &AttentionResult::dtable, &AttentionResult::dtable_terms);
  }

  // The only query is the last position.
  bool is_last() const { return pattern_.direction == Direction::past && shape_.n_q() < shape_.n; }

  // A sink and a table of labels, or their gradients.
  template <class T>
  struct Parameters {
    std::vector<T> sink, table;
  };

  // The next whole number from `least` to `most`.
  std::int64_t from(std::int64_t least, std::int64_t most) {
    const auto word = static_cast<std::int64_t>(philox(91, number_, drawn_++, 0).word[0]);
    return least + word % (most - least + 1);
  }
  bool one_in(std::int64_t count) { return from(1, count) == 1; }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(from(0, std::ssize(all) - 1))];
  }

  std::int64_t& one_of_places(std::vector<std::int64_t>& all) {
    return all[static_cast<std::size_t>(from(0, std::ssize(all) - 1))];
  }

  void draw_pattern() {
    using enum PartKind;
    pattern_.direction = one_in(2) ? Direction::both : Direction::past;
    pattern_.integration = one_of<Integration>({Integration::merged, Integration::merged, Integration::multihead});
    const auto window = one_of<PartKind>({local, local, fixed_block}),
               rest = one_of<PartKind>({column, fixed_summary, first});
    pattern_.parts = one_in(2)   ? std::vector<PartKind>{window, rest}
                     : one_in(2) ? std::vector<PartKind>{one_of<PartKind>({window, rest})}
                                 : std::vector<PartKind>{dense};
    if (one_in(3)) {
      pattern_.parts = {one_of<PartKind>({block_window, dilated, shifted_block})};
      pattern_.integration = Integration::merged;
      if (pattern_.parts[0] == shifted_block) pattern_.direction = Direction::both;
    }
    if (pattern_.parts[0] == dense && !one_in(3)) block_ = static_cast<std::int32_t>(from(1, 2)) * BlockLists::unit;
    shape_.heads = std::max<std::int64_t>(from(1, one_in(4) ? 8 : 3), std::ssize(pattern_.parts));
    pattern_.stride = from(1, one_in(2) ? 9 : 90);
    pattern_.window = from(0, 40) * 2 + 1;
    pattern_.summary = {from(1, pattern_.stride)};
    pattern_.distinct_heads = one_in(2);
    pattern_.summary_inclusive = one_in(2);
    pattern_.first = from(1, 12);
    pattern_.block = pattern_.stride;
    pattern_.dilation = {from(1, 5)};
    pattern_.blocks = from(1, 6);
    pattern_.shifts.assign(static_cast<std::size_t>(from(1, pattern_.blocks)), 0);
    for (std::int64_t h = 0; h < shape_.heads; ++h) ++one_of_places(pattern_.shifts);
  }

  // Mostly few positions: the definition takes milliseconds for the most.
  void draw_shape() {
    const auto length = [&] {
      return one_in(10) || block_ > 0 ? from(300, 3000) : one_in(3) ? from(60, 300) : from(1, 60);
    };
    shape_.batch = from(1, 2);
    shape_.n = length();
    shape_.queries = pattern_.direction == Direction::past ? (one_in(5) ? 1 : shape_.n)
                     : one_in(2)                           ? length()
                                                           : shape_.n;
    shape_.key_size = from(1, 12);
    shape_.value_size = from(1, 12);
    const std::int64_t most = block_ > 0 ? 200'000 : 50'000;
    const auto pairs = [&] {
      std::int64_t sum = 0;
      for (std::int64_t h = 0; h < shape_.heads; ++h)
        sum += allowed_pairs(pattern_, 0, shape_.heads, h, shape_.n, shape_.queries);
      return shape_.batch * sum;
    };
    while (pairs() > most) shape_.n = (shape_.n + 1) / 2, shape_.queries = (shape_.queries + 1) / 2;
    tile_ = one_of<TileShape>({TileShape{}, TileShape{16, 8}, TileShape{8, block_ > 0 ? 32 : 24}});
  }

  // Documents, which are one for all heads, or intervals of every head, of which some may be empty.
  void draw_bounds() {
    bound_kind_ = static_cast<int>(from(0, 2));
    if (bound_kind_ == 0) return;
    bound_heads_ = bound_kind_ == 1 || one_in(2) ? 1 : shape_.heads;
    const std::int64_t longest = std::max(shape_.n, shape_.n_q());
    for (std::int64_t row = 0; row < shape_.batch * bound_heads_; ++row) {
      if (bound_kind_ == 1) {
        for (std::int64_t i = 0, end = 0, begin = 0; i < shape_.n_q(); ++i) {
          if (i == end) begin = end, end += from(1, std::max<std::int64_t>(1, longest / 2));
          begin_.push_back(static_cast<std::int32_t>(begin));
          end_.push_back(static_cast<std::int32_t>(end));
        }
        continue;
      }
      for (auto* ends : {&begin_, &end_}) {
        const auto first = static_cast<std::ptrdiff_t>(ends->size());
        for (std::int64_t i = 0; i < shape_.n_q(); ++i)
          ends->push_back(static_cast<std::int32_t>(from(0, ends == &begin_ ? shape_.n : shape_.n + 9)));
        std::sort(ends->begin() + first, ends->end());
      }
    }
  }

  // Clipped distances or places from the end, of two groups or of all; a table of every head or of all.
  void draw_labels() {
    if (one_in(2)) return;
    from_end_ = one_in(3) || is_last();
    clip_ = from_end_ ? 0 : from(0, 5);
    const bool grouped = one_in(2);
    labels_ = (from_end_ ? from(1, 9) : 2 * clip_ + 1) * (grouped ? 2 : 1);
    tables_ = one_in(2) ? 1 : shape_.heads;
    for (std::int64_t e = 0; e < labels_ * tables_ * shape_.key_size; ++e)
      table_.push_back(static_cast<double>(from(-64, 64)) / 64);
    for (std::int64_t i = 0; grouped && i < shape_.batch * shape_.n_q(); ++i)
      query_groups_.push_back(static_cast<std::int32_t>(from(0, 2)));
    for (std::int64_t j = 0; grouped && j < shape_.batch * shape_.n; ++j)
      key_groups_.push_back(static_cast<std::int32_t>(from(0, 2)));
  }

  // after: keys of query i's interval that follow key j.
  std::int64_t label(std::int64_t sequence, std::int64_t i, std::int64_t j, std::int64_t after) const {
    const std::int64_t of_set = query_groups_.empty() ? labels_ : labels_ / 2;
    std::int64_t label = clip_ + std::clamp(j - i, -clip_, clip_);
    if (from_end_) label = std::min(after, of_set - 1);
    if (query_groups_.empty()) return label;
    const std::int32_t own = query_groups_[static_cast<std::size_t>(sequence * shape_.n_q() + i)];
    return own == key_groups_[static_cast<std::size_t>(sequence * shape_.n + j)] ? label : label + of_set;
  }
  // By key, how many follow it in the interval of its part that query i of a head sees.
  std::map<std::int32_t, std::int64_t> places(const AttentionPlan& plan, std::int64_t head, std::int64_t i,
                                              const BoundsOfHead& clamp) const {
    std::map<std::int32_t, std::int64_t> after;
    const auto row = static_cast<std::int32_t>(i);
    for (const Pass& pass : plan.passes_of(head))
      for (std::int32_t residue = 0; residue < pass.classes; ++residue)
        for (const Part& part : plan.parts_of(pass)) {
          if (!rows_within(pass.queries, residue, plan.queries).holds(row)) continue;
          const RowSet keys = rows_within(part.keys, residue, plan.n);
          const Interval in = clamp.clamp(part.interval(keys, row), keys, row);
          for (std::int32_t t = in.begin; t < in.end; ++t) after[keys.position(t)] = in.end - 1 - t;
        }
    return after;
  }
  Labels labels(const Tensor& table) const {
    if (labels_ == 0) return {};
    const auto groups = [&](const std::vector<std::int32_t>& of, std::int64_t rows) {
      return of.empty() ? Tensor() : Tensor(const_cast<std::int32_t*>(of.data()), Dtype::i32, {shape_.batch, rows});
    };
    return {table, static_cast<std::int32_t>(clip_), groups(query_groups_, shape_.n_q()), groups(key_groups_, shape_.n),
            from_end_};
  }

  RowBounds bounds() const {
    if (begin_.empty()) return {};
    const auto view = [&](const std::vector<std::int32_t>& ends) {
      return Tensor(const_cast<std::int32_t*>(ends.data()), Dtype::i32, {shape_.batch, bound_heads_, shape_.n_q()});
    };
    return {view(begin_), view(end_)};
  }

  std::shared_ptr<const AttentionPlan> plan() const {
    return make_plan(pattern_, 0, shape_.heads, shape_.n, tile_, shape_.n_q());
  }

  // Returns the gradients of parameters.
  template <class T>
  Parameters<T> compute(AttentionData<T>& x) const {
    const auto plan = this->plan();
    std::vector<T> sink(sink_.begin(), sink_.end()), table(table_.begin(), table_.end());
    Parameters<T> gradients{std::vector<T>(static_cast<std::size_t>(shape_.heads)), std::vector<T>(table.size())};
    const auto table_of = [&](std::vector<T>& of) {
      return table.empty() ? Tensor() : Tensor(of.data(), DtypeOf<T>::value, {labels_, tables_, shape_.key_size});
    };
    const auto logits = [&](std::vector<T>& of) {
      return sink.empty() ? Tensor() : Tensor(of.data(), DtypeOf<T>::value, {shape_.heads});
    };
    const BlockLists lists = lists_ ? lists_->view() : BlockLists{};
    run_forward(*plan, shape_, x, bounds(), lists, labels(table_of(table)), logits(sink));
    run_backward(*plan, shape_, x, bounds(), lists, labels(table_of(table)), table_of(gradients.table), logits(sink),
                 logits(gradients.sink));
    return gradients;
  }

  template <class A>
  AttentionResult defined(const AttentionInput& in) const {
    auto masks = masks_of(pattern_, shape_.heads, 0, shape_.n, is_last() ? shape_.n : shape_.n_q());
    for (Mask& mask : masks)
      if (is_last()) mask.erase(mask.begin(), mask.end() - 1);
    NaiveProblem problem = naive_problem<A>(in);
    if (!sink_.empty()) problem.sink = sink_.data();
    problem.distances = labels_;
    problem.tables = tables_;
    problem.table = table_.data();
    problem.with_parameters = true;
    const auto plan = this->plan();
    NaiveAttention<A> naive(problem);
    naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) {
      const BoundsOfHead clamp = bounds_of(bounds(), s, h);
      std::vector<NaivePair<A>> pairs;
      const auto after = from_end_ ? places(*plan, h, i, clamp) : std::map<std::int32_t, std::int64_t>();
      for (const std::int32_t j : masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)])
        if ((!clamp.given() || (clamp.begin[i] <= j && j < clamp.end[i])) && (!lists_ || lists_->hold(s, h, i, j)))
          pairs.push_back({.key = j, .distance = label(s, i, j, from_end_ ? after.at(j) : 0)});
      return pairs;
    });
    return stored_result(naive.out, sizeof(A) == sizeof(double) ? Dtype::f64 : Dtype::f32);
  }

  std::uint64_t number_;
  std::uint32_t drawn_ = 0;
  PatternConfig pattern_;
  AttentionShape shape_;
  TileShape tile_;
  int bound_kind_ = 0;
  std::int64_t bound_heads_ = 1;
  std::vector<std::int32_t> begin_, end_;
  std::vector<double> sink_;
  std::int32_t block_ = 0;  // rows; 0: no lists
  std::optional<DrawnLists> lists_;
  std::int64_t labels_ = 0, tables_ = 1, clip_ = 0;  // no labels: none
  bool from_end_ = false;
  std::vector<double> table_;
  std::vector<std::int32_t> query_groups_, key_groups_;
};

}  // namespace longstride::kernels
