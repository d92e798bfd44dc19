// A call of attention and its backward pass on emulated blocks, compared with a naive one.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/choice.h"
#include "kernels/attention/pattern/plan.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "tests/emulated/emulated_shapes.h"
#include "tests/support/as_good_as_naive.h"
#include "tests/support/drawn_lists.h"

namespace longstride::kernels {

// q, k and v side by side in every row, as in the model, and so their gradients.
template <class T>
class EmulatedAttention {
  static constexpr Dtype dtype = DtypeOf<T>::value;

 public:
  // ends: of documents, to which rows are clamped. block: of lists that every head has of its own; 0: none.
  EmulatedAttention(const PatternConfig& pattern, const AttentionShape& shape, AttentionPath path,
                    const std::vector<std::int32_t>& ends, std::int32_t block, const EmulatedLabels& labels)
      : shape_(shape),
        path_(path),
        labels_(labels),
        plan_(make_plan(pattern, 0, shape.heads, shape.n, {}, shape.n_q())),
        in_(shape, dtype),
        logits_(sinks_of(shape)),
        sink_(logits_.begin(), logits_.end()),
        dsink_(sink_.size()) {
    const auto elements = static_cast<std::size_t>(labels.count * labels.tables * shape.key_size);
    for (std::size_t e = 0; e < elements; ++e) {
      table_.push_back(element(testing::drawn_normals(5, 0, elements)[e]));
      vectors_.push_back(static_cast<double>(cuda::to_float(table_.back())));
    }
    dtable_.resize(elements);
    for (std::int64_t s = 0; s < shape.batch; ++s)
      for (std::int64_t i = 0; i < std::max(shape.n, shape.n_q()); ++i) {
        const std::int32_t group = EmulatedLabels::group(s, i);
        if (i < shape.n) key_groups_.push_back(group);
        if (i < shape.n_q()) query_groups_.push_back(group);
      }
    auto masks = masks_of(pattern, shape.heads, 0, shape.n, shape.n_q());
    if (!ends.empty()) clamp(masks, ends);
    if (block > 0) restrict(masks, block);
    naive_ = defined<float>(masks, dtype);
    exact_ = defined<double>(masks, Dtype::f64);
    inputs_.resize(static_cast<std::size_t>(shape.batch * most_rows() * row()));
    gradients_.resize(inputs_.size());
    o_.resize(in_.dout.size());
    lse_.resize(static_cast<std::size_t>(shape.rows()));
    const std::vector<double>* from[] = {&in_.q, &in_.k, &in_.v};
    for (int which = 0; which < 3; ++which)
      for (std::int64_t r = 0; r < shape.batch * rows_of(which); ++r)
        for (std::int64_t x = 0; x < width(which); ++x)
          inputs_[at(which, r, x)] = element((*from[which])[static_cast<std::size_t>(r * width(which) + x)]);
    for (double x : in_.dout) dout_.push_back(element(x));
  }

  // All that is written, as it is in memory, from a GPU of this many multiprocessors and events in the seed's order.
  std::vector<std::byte> run(int multiprocessors, std::uint64_t seed) {
    cuda::emulation = {seed, multiprocessors};
    std::memset(gradients_.data(), 0xFF, gradients_.size() * sizeof(T));
    std::memset(o_.data(), 0xFF, o_.size() * sizeof(T));
    std::fill(lse_.begin(), lse_.end(), std::numeric_limits<float>::quiet_NaN());
    AttentionArgs forward{plan_.get(),
                          slice(inputs_, 0),
                          slice(inputs_, 1),
                          slice(inputs_, 2),
                          values(o_),
                          Tensor(lse_.data(), Dtype::f32, {shape_.batch, shape_.heads, shape_.n_q()}),
                          shape_.scale(),
                          {},
                          path_,
                          bounds(),
                          lists(),
                          labels(),
                          logits(sink_)};
    AttentionBackwardArgs backward{plan_.get(),
                                   forward.q,
                                   forward.k,
                                   forward.v,
                                   forward.o,
                                   forward.lse,
                                   values(dout_),
                                   slice(gradients_, 0),
                                   slice(gradients_, 1),
                                   slice(gradients_, 2),
                                   forward.scale,
                                   {},
                                   path_,
                                   bounds(),
                                   lists(),
                                   labels(),
                                   {},
                                   logits(sink_),
                                   logits(dsink_)};
    if (labels_.count > 0) backward.dtable = Tensor(dtable_.data(), Dtype::f32, forward.labels.table.shape());
    std::fill(dtable_.begin(), dtable_.end(), 0.0f);
    std::fill(dsink_.begin(), dsink_.end(), 0.0f);
    run_within_scratch(forward, [](const AttentionArgs& args) { cuda::attention(args, {}); });
    run_within_scratch(backward, [](const AttentionBackwardArgs& args) { cuda::attention_backward(args, {}); });
    std::vector<std::byte> written;
    const auto append = [&](const auto& x) {
      const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
      written.insert(written.end(), bytes, bytes + x.size() * sizeof x[0]);
    };
    append(o_);
    append(lse_);
    append(gradients_);
    append(dtable_);
    append(dsink_);
    return written;
  }
  void expect_as_good_as_naive(const std::string& where) const {
    AttentionResult x;
    for (const T e : o_) x.o.push_back(static_cast<double>(cuda::to_float(e)));
    x.lse.assign(lse_.begin(), lse_.end());
    x.dq = gradient(0);
    x.dk = gradient(1);
    x.dv = gradient(2);
    x.dsink.assign(dsink_.begin(), dsink_.end());
    kernels::expect_as_good_as_naive(x, naive_, exact_, in_, where);
    if (labels_.count == 0) return;
    x.dtable.assign(dtable_.begin(), dtable_.end());
    kernels::expect_as_good_as_naive("dtable", x.dtable, naive_.dtable, exact_.dtable, Dtype::f32, exact_.dtable_terms,
                                     where);
  }

 private:
  template <class Args, class F>
  static void run_within_scratch(Args args, F&& run) {
    const Tensor needed = args.scratch_on(Device::cuda);
    const std::size_t words = needed.given() ? needed.bytes() / sizeof(float) : 0;
    constexpr float untouched = 1.25e30f;
    std::vector<float> scratch(words + 64, untouched);
    args.scratch = Tensor(scratch.data(), Dtype::u8, needed.shape());
    run(args);
    EXPECT_EQ(std::count(scratch.begin() + static_cast<std::ptrdiff_t>(words), scratch.end(), untouched), 64)
        << "more scratch is used than was asked for";
    EXPECT_TRUE(choose(args).sums_bytes == 0 || scratch[words - 1] != untouched) << "less scratch is used";
  }

  template <class A>
  AttentionResult defined(const std::vector<Mask>& masks, Dtype stored) const {
    NaiveProblem problem = naive_problem<A>(in_);
    problem.distances = labels_.count;
    problem.tables = labels_.tables;
    problem.table = vectors_.data();
    problem.with_parameters = labels_.count > 0;
    if (!logits_.empty()) problem.sink = logits_.data();
    NaiveAttention<A> naive(problem, rounding_to(stored));
    naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) {
      const std::vector<std::int32_t>& keys = masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)];
      std::vector<NaivePair<A>> pairs;
      for (const std::int32_t j : keys) {
        const auto is_behind = [&](std::int32_t other) {
          const std::int64_t l = labels_.block;
          return other > j && (l == 0 || (other / l == i / l) == (j / l == i / l));
        };
        pairs.push_back(
            {.key = j, .distance = labels_.of(s, i, j, std::count_if(keys.begin(), keys.end(), is_behind))});
      }
      return pairs;
    });
    return stored_result(naive.out, stored);
  }
  Tensor logits(std::vector<float>& of) const {
    return of.empty() ? Tensor() : Tensor(of.data(), Dtype::f32, {shape_.heads});
  }
  Labels labels() {
    if (labels_.count == 0) return {};
    const auto groups = [&](std::vector<std::int32_t>& of, std::int64_t rows) {
      return labels_.grouped ? Tensor(of.data(), Dtype::i32, {shape_.batch, rows}) : Tensor();
    };
    return {Tensor(table_.data(), dtype, {labels_.count, labels_.tables, shape_.key_size}), labels_.clip,
            groups(query_groups_, shape_.n_q()), groups(key_groups_, shape_.n), labels_.from_end};
  }

  // To the documents that end there, and one behind them, or to intervals, of which some are empty.
  void clamp(std::vector<Mask>& masks, const std::vector<std::int32_t>& ends) {
    const auto n = static_cast<std::int32_t>(shape_.n);
    for (std::int32_t i = 0; i < shape_.n_q(); ++i) {
      const auto next = std::upper_bound(ends.begin(), ends.end(), i);
      documents_ = ends.front() != EmulatedShape::intervals;
      begin_.push_back(!documents_ ? i * 3 / 4 : next == ends.begin() ? 0 : *(next - 1));
      end_.push_back(!documents_ ? std::min(n, i / 2 + 90) : next == ends.end() ? n : *next);
      for (Mask& mask : masks)
        std::erase_if(mask[static_cast<std::size_t>(i)],
                      [&](std::int32_t j) { return j < begin_.back() || j >= end_.back(); });
    }
  }
  // To drawn lists.
  void restrict(std::vector<Mask>& masks, std::int32_t block) {
    lists_.emplace(5, block, 1, shape_.heads, shape_.n, shape_.n);
    for (std::size_t h = 0; h < masks.size(); ++h)
      for (std::size_t i = 0; i < masks[h].size(); ++i)
        std::erase_if(masks[h][i], [&](std::int32_t j) {
          return !lists_->hold(0, static_cast<std::int64_t>(h), static_cast<std::int64_t>(i), j);
        });
  }
  BlockLists lists() const { return lists_ ? lists_->view() : BlockLists{}; }
  RowBounds bounds() {
    if (begin_.empty()) return {};
    const auto tensor = [&](std::vector<std::int32_t>& x) {
      return Tensor(x.data(), Dtype::i32, {1, 1, shape_.n_q()});
    };
    return {tensor(begin_), tensor(end_), documents_};
  }
  static T element(double x) { return cuda::from_float<T>(static_cast<float>(x)); }
  std::int64_t rows_of(int which) const { return which == 0 ? shape_.n_q() : shape_.n; }
  std::int64_t most_rows() const { return std::max(shape_.n_q(), shape_.n); }
  std::int64_t size(int which) const { return which < 2 ? shape_.key_size : shape_.value_size; }
  std::int64_t heads(int which) const { return which == 0 ? shape_.heads : shape_.heads_of_keys(); }
  std::int64_t width(int which) const { return heads(which) * size(which); }
  std::int64_t begin(int which) const { return which == 0 ? 0 : begin(which - 1) + width(which - 1); }
  std::int64_t row() const { return begin(3); }
  std::size_t at(int which, std::int64_t r, std::int64_t x) const {
    const std::int64_t n = rows_of(which);
    return static_cast<std::size_t>((r / n * most_rows() + r % n) * row() + begin(which) + x);
  }
  Tensor slice(std::vector<T>& x, int which) const {
    return {x.data() + begin(which),
            dtype,
            {shape_.batch, rows_of(which), heads(which), size(which)},
            {most_rows() * row(), row(), size(which), 1}};
  }
  Tensor values(std::vector<T>& x) const {
    return {x.data(), dtype, {shape_.batch, shape_.n_q(), shape_.heads, shape_.value_size}};
  }
  std::vector<double> gradient(int which) const {
    std::vector<double> out;
    for (std::int64_t r = 0; r < shape_.batch * rows_of(which); ++r)
      for (std::int64_t x = 0; x < width(which); ++x)
        out.push_back(static_cast<double>(cuda::to_float(gradients_[at(which, r, x)])));
    return out;
  }

  AttentionShape shape_;
  AttentionPath path_;
  EmulatedLabels labels_;
  std::shared_ptr<const AttentionPlan> plan_;
  AttentionInput in_;
  AttentionResult naive_, exact_;
  std::vector<double> logits_;  // the sinks
  std::vector<float> sink_, dsink_;
  std::vector<T> inputs_, gradients_, o_, dout_, table_;
  std::vector<double> vectors_;  // the table
  std::vector<float> lse_, dtable_;
  std::vector<std::int32_t> begin_, end_, query_groups_, key_groups_;
  bool documents_ = false;
  std::optional<DrawnLists> lists_;
};

struct EmulatedRun {
  int multiprocessors;
  std::uint64_t seed;
};

// The first run is as good as a naive call. Whatever the order of events and the division between blocks, the others
// have its bits.
template <class T>
void expect_right_in_every_run(const EmulatedShape& shape, const std::vector<EmulatedRun>& runs) {
  EmulatedAttention<T> call(
      shape.pattern,
      {shape.batch, shape.n, shape.heads, shape.key_size, shape.value_size, shape.queries, shape.key_heads}, shape.path,
      shape.ends, shape.block, shape.labels);
  std::vector<std::byte> first;
  for (const EmulatedRun& now : runs) {
    const std::vector<std::byte> found = call.run(now.multiprocessors, now.seed);
    if (first.empty()) {
      call.expect_as_good_as_naive(shape.with_sizes());
      first = found;
    }
    EXPECT_TRUE(found == first) << "other bits, seed " << now.seed;
  }
}
inline void expect_right_in_every_run(const EmulatedShape& shape, const std::vector<EmulatedRun>& runs) {
  cuda::with_gpu_type(shape.dtype, [&](auto zero) { expect_right_in_every_run<decltype(zero)>(shape, runs); });
}

}  // namespace longstride::kernels
