#include "framework/core/state.h"

#include <algorithm>
#include <utility>

#include "framework/core/errors.h"

namespace longstride {

const State& StateSet::add(std::string name, const Shape& shape, StateType type) {
  LONGSTRIDE_CHECK(std::none_of(all_.begin(), all_.end(), [&](const State& s) { return s.name == name; }),
                   "two states are named {}", name);
  LONGSTRIDE_CHECK(shape.rank > 0 && shape.rank < Shape::max_rank && shape.count() > 0, "state {} is {}", name,
                   shape.text());
  all_.push_back({std::move(name), shape, type, row_});
  (type == StateType::compute ? row_.compute : row_.exact) += (shape.count() + alignment - 1) / alignment * alignment;
  return all_.back();
}

RowStates::RowStates(std::int64_t rows, const StateTypes& types, const Tensor& now, const Tensor& next)
    : types_(types), rows_(rows), count_(rows), now_(now), next_(next) {
  LONGSTRIDE_CHECK(now.dtype() == Dtype::u8 && next.dtype() == Dtype::u8 && now.count() == next.count(),
                   "states in {} {} and {} {}", now.shape().text(), name_of(now.dtype()), next.shape().text(),
                   name_of(next.dtype()));
}

RowStates RowStates::at(const Tensor& now, const Tensor& next) const {
  RowStates other(rows_, types_, now, next);
  other.first_ = first_;
  other.count_ = count_;
  return other;
}

RowStates RowStates::slice(std::int64_t begin, std::int64_t end) const {
  LONGSTRIDE_CHECK(0 <= begin && begin <= end && end <= count_, "rows {} to {} of {}", begin, end, count_);
  RowStates part = *this;
  part.first_ += begin;
  part.count_ = end - begin;
  return part;
}

Tensor RowStates::of(const State& state, const Tensor& flat) const {
  LONGSTRIDE_CHECK(given(), "state {} has no memory", state.name);
  const Dtype dtype = types_.of(state.type);
  const std::int64_t row = state.shape.count() * static_cast<std::int64_t>(kernels::bytes_of(dtype)),
                     begin = state.before.bytes(types_) * rows_ + first_ * row;
  Shape shape;
  shape.rank = state.shape.rank + 1;
  shape.size[0] = count_;
  std::copy_n(state.shape.size, state.shape.rank, shape.size + 1);
  return {flat.slice(0, begin, begin + count_ * row).data(), dtype, shape};
}

}  // namespace longstride
