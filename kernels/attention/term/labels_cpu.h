// The term of labels in the CPU's loops: the products of a query tile and the table, once per tile, to which a score
// adds one number; and the gradients of scores, summed by label.
#pragma once
#include <type_traits>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/term/none.h"

namespace longstride::kernels::cpu {

template <class T>
class LabelsTerm : public NoTerm<T> {
 public:
  static constexpr bool given = true;

  // One thread's matrices, whose columns are the queries of a tile.
  struct Space {
    T *by_label, *dby_label;         // (labels, queries): products with the table, and sums of gradients of scores
    std::int32_t *positions, *ends;  // per query: its position, and the end of its interval
    T* sums = nullptr;               // dby_label of all rows of lse: (rows, labels); null: not wanted

    Space(const Labels& labels, TileShape tile, Carver& carver) {
      const std::int64_t lanes = padded<T>(tile.queries);
      by_label = carver.take<T>(labels.count() * lanes);
      dby_label = carver.take<T>(labels.count() * lanes);
      positions = carver.take<std::int32_t>(lanes);
      ends = carver.take<std::int32_t>(lanes);
    }
  };

  template <class Args>
  LabelsTerm(const Args& args, const Pass& in, const Part& one, const WorkUnit& unit, const Space& space)
      : NoTerm<T>(args, in, one, unit, {}),
        space_(space),
        rule_(args.labels, unit.sequence),
        count_(args.labels.count()),
        size_(args.q.size(3)),
        stride_(args.labels.table.stride(0)) {
    const Tensor& table = args.labels.table;
    table_ = table.template as<const T>() + (table.size(1) > 1 ? unit.head * table.stride(1) : 0);
    if (space_.sums != nullptr)
      sums_ = space_.sums + (unit.sequence * args.q.size(2) + unit.head) * args.q.size(1) * count_;
  }

  void load_queries(const HeadRows<const T>&, const T* q_t, const RowSet& set, Tile tile, std::int64_t lanes) {
    rows_ = tile.rows;
    std::fill_n(space_.positions, lanes, 0);
    std::fill_n(space_.ends, lanes, 0);
    each_entry(set, tile.begin, tile.rows, [&](std::int32_t r, std::int32_t position) {
      space_.positions[r] = position;
      space_.ends[r] = this->interval(position).end;
    });
    multiply<Into::zero, T>({table_, stride_, 1}, q_t, lanes, space_.by_label, lanes, count_, lanes, size_);
    std::fill_n(space_.dby_label, count_ * lanes, T(0));
  }

  void add_scores(const Block& block, Tile tile, T* s, std::int64_t ld) const {
    each_label(block, tile, ld,
               [&](std::int64_t pair, std::int64_t of_label) { s[pair] += space_.by_label[of_label]; });
  }
  void add_gradients(const Block& block, Tile tile, const T* ds, std::int64_t ld) const {
    each_label(block, tile, ld,
               [&](std::int64_t pair, std::int64_t of_label) { space_.dby_label[of_label] += ds[pair]; });
  }

  // Adds the gradients through the table to dq_t, which holds those through the keys; both lack the scale.
  void finish_queries(T* dq_t, std::int64_t lanes) const {
    multiply<Into::sum, T>({table_, 1, stride_}, space_.dby_label, lanes, dq_t, lanes, size_, lanes, count_);
    for (std::int32_t r = 0; sums_ != nullptr && r < rows_; ++r)
      for (std::int64_t l = 0; l < count_; ++l)
        sums_[space_.positions[r] * count_ + l] += space_.dby_label[l * lanes + r];
  }

 private:
  // f(element of a tile, element of by_label) of the pairs of a block.
  template <class F>
  void each_label(const Block& block, Tile tile, std::int64_t ld, F&& f) const {
    for (std::int32_t r = block.first_row; r < block.first_row + block.rows; ++r) {
      const std::int32_t entry = tile.begin + r, j = this->keys.position(entry);
      for (std::int64_t x = block.first_lane; x < block.first_lane + block.lanes; ++x)
        f(r * ld + x, rule_.label(space_.positions[x], j, space_.ends[x] - 1 - entry) * ld + x);
    }
  }

  const Space& space_;
  LabelRule rule_;
  std::int64_t count_, size_, stride_;
  const T* table_;
  T* sums_ = nullptr;
  std::int32_t rows_ = 0;
};

// f(zero of the type that a call has, std::type_identity of its term).
template <class Args, class F>
void with_term(const Args& args, F&& f) {
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    args.labels.given() ? f(zero, std::type_identity<LabelsTerm<T>>()) : f(zero, std::type_identity<NoTerm<T>>());
  });
}

// dtable += scale sums^T q, over all rows in order, by blocks of rows, whose rounding errors are smaller than those of
// one sum.
template <class T>
void add_table_gradient(const AttentionBackwardArgs& args, const T* sums) {
  constexpr std::int64_t block = 64;
  const std::int64_t heads = args.q.size(2), n = args.q.size(1), size = args.q.size(3), count = args.labels.count();
  const std::int64_t tables = args.dtable.size(1), blocks = (n + block - 1) / block;
#pragma omp parallel for collapse(2)
  for (std::int64_t label = 0; label < count; ++label)
    for (std::int64_t table = 0; table < tables; ++table) {
      std::vector<T> sum(static_cast<std::size_t>(2 * size));
      T *const total = sum.data(), *const part = total + size;
      for (std::int64_t unit = 0; unit < args.q.size(0) * heads; ++unit) {
        if (unit % heads % tables != table) continue;
        const auto q = rows_of<const T>(args.q, unit / heads, unit % heads);
        for (std::int64_t b = 0; b < blocks; ++b) {
          std::fill_n(part, size, T(0));
          for (std::int64_t i = b * block; i < std::min(n, (b + 1) * block); ++i) {
            const T by_label = sums[(unit * n + i) * count + label];
            for (std::int64_t d = 0; d < size; ++d) part[d] += by_label * q.at(i)[d];
          }
          for (std::int64_t d = 0; d < size; ++d) total[d] += part[d];
        }
      }
      T* const to = args.dtable.as<T>() + label * args.dtable.stride(0) + table * args.dtable.stride(1);
      for (std::int64_t d = 0; d < size; ++d) to[d] += static_cast<T>(args.scale) * total[d];
    }
}

}  // namespace longstride::kernels::cpu
