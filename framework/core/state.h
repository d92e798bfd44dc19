// State: what a model keeps between steps that is neither a parameter nor an activation. Layers declare theirs to a
// StateSet while the model is built. Memory for it is an instance, RowStates: training and every evaluation have their
// own, and a layer finds the instance of its run in the context.
//
// A state is of the type in which layers compute, or of the exact one. What a layer stores of its input is already a
// value of the compute type, so that is lossless and takes half the memory in 16-bit training. Counts need the exact
// type: bf16 holds integers only up to 256.
//
// A row of the global batch has its own state, which describes the stream that the row reads: it is zero where a stream
// starts, follows the row when the number of ranks changes, and is saved with the place in the stream. It is
// double-buffered. During a step layers read `now` and write `next`, so that recompute reads what the first forward
// read; at the end of the step `next` is copied to `now`. No gradient passes through it.
//
// What is a function of (seed, step, layer, head) alone is drawn by Philox (kernels/base/philox.h) and is no state.
#pragma once
#include <cstdint>
#include <deque>
#include <string>

#include "framework/core/tensor.h"

namespace longstride {

enum class StateType : std::uint8_t { compute, exact };

// The element types of an instance: Context::compute and Context::exact of its run.
struct StateTypes {
  Dtype compute = Dtype::f32, exact = Dtype::f32;
  Dtype of(StateType type) const { return type == StateType::compute ? compute : exact; }
};

// Elements of states of one row, with padding.
struct StateElements {
  std::int64_t compute = 0, exact = 0;
  std::int64_t bytes(const StateTypes& types) const {
    return compute * static_cast<std::int64_t>(kernels::bytes_of(types.compute)) +
           exact * static_cast<std::int64_t>(kernels::bytes_of(types.exact));
  }
};

struct State {
  std::string name;  // in checkpoints, like a parameter's
  Shape shape;       // shape of a row's state, at most three dimensions
  StateType type = StateType::compute;
  StateElements before;  // elements of the states declared before it, multiples of StateSet::alignment
};

class StateSet {
 public:
  static constexpr std::int64_t alignment = 64;  // elements

  // Declares a state; the reference stays valid. Names are unique.
  const State& add(std::string name, const Shape& shape, StateType type);

  bool empty() const { return all_.empty(); }
  const std::deque<State>& all() const { return all_; }
  std::int64_t row_bytes(const StateTypes& types) const { return row_.bytes(types); }  // a row's states, with padding

 private:
  std::deque<State> all_;
  StateElements row_;
};

// The states of some rows: `now` and `next`, flat buffers of rows x row_bytes() bytes, in which a state's rows are next
// to each other.
class RowStates {
 public:
  RowStates() = default;  // absent: the model has no state
  RowStates(std::int64_t rows, const StateTypes& types, const Tensor& now, const Tensor& next);

  bool given() const { return now_.given(); }
  std::int64_t count() const { return count_; }
  // Rows [begin, end) of these.
  RowStates slice(std::int64_t begin, std::int64_t end) const;
  // The same rows in other memory.
  RowStates at(const Tensor& now, const Tensor& next) const;
  // (count, shape of the state), of its type
  Tensor now(const State& state) const { return of(state, now_); }
  Tensor next(const State& state) const { return of(state, next_); }
  // Both buffers whole, whatever the slice: u8.
  const Tensor& all_now() const { return now_; }
  const Tensor& all_next() const { return next_; }

 private:
  Tensor of(const State& state, const Tensor& flat) const;

  StateTypes types_;
  std::int64_t rows_ = 0;  // in the buffers
  std::int64_t first_ = 0, count_ = 0;
  Tensor now_, next_;
};

}  // namespace longstride
