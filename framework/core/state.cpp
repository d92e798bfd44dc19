#include "framework/core/state.h"

#include <algorithm>
#include <utility>

#include "framework/core/errors.h"

namespace longstride {

const State& StateSet::add(std::string name, const Shape& shape) {
  LONGSTRIDE_CHECK(std::none_of(all_.begin(), all_.end(), [&](const State& s) { return s.name == name; }),
                   "two states are named {}", name);
  LONGSTRIDE_CHECK(shape.rank > 0 && shape.rank < Shape::max_rank && shape.count() > 0, "state {} is {}", name,
                   shape.text());
  all_.push_back({std::move(name), shape, row_size_});
  row_size_ += (shape.count() + alignment - 1) / alignment * alignment;
  return all_.back();
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
  const std::int64_t size = state.shape.count(), begin = state.offset * rows_ + first_ * size;
  Shape shape;
  shape.rank = state.shape.rank + 1;
  shape.size[0] = count_;
  std::copy_n(state.shape.size, state.shape.rank, shape.size + 1);
  return flat.slice(0, begin, begin + count_ * size).reshape(shape);
}

}  // namespace longstride
