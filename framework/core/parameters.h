// Parameters, gradients and optimizer state are slices of flat buffers. Layers declare what they need to a
// ParameterSet while the model is built; bind() then points every declaration at its slice.
//
// Flat order: all parameters with weight decay first (matrices and tables), then the others (vectors), each
// group in order of declaration; every slice starts at a multiple of `alignment` elements and the padding
// stays zero. The flat buffers are cut into buckets, which ranks exchange one at a time. A bucket holds whole
// parameters of one group; its size is a multiple of `alignment` elements per rank. Names are the tensor names of
// model.safetensors (docs/develop/numerics.md).
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "framework/core/tensor.h"

namespace longstride {

// How a parameter starts: normal with this standard deviation, with numbers that repeat, or a constant.
struct Init {
  double deviation = 0;             // > 0: normal
  double constant = 0;              // otherwise
  std::vector<double> repeat = {};  // if there are any, in place of the constant
  // Not empty: the numbers of this parameter, declared before, from this element on, which is normal as well.
  std::string like = {};
  std::int64_t like_from = 0;
};

// Between which numbers a parameter stays: every update ends with it.
struct Limits {
  double low = 0, high = 1;
};

struct Parameter {
  std::string name;
  Shape shape;
  Init init;
  std::int64_t offset = 0;  // in elements, in every flat buffer
  Tensor master;            // the numbers that the optimizer updates and checkpoints hold (fp32; f64 in tests)
  Tensor value;             // operand of matrix products: the master itself, or its low-precision copy
  Tensor gradient;          // accumulated by backward; overwritten only where it follows from another that accumulates
  // For a layer's matrix: the row counts of the linear maps stacked in it. Empty for a table, the output and vectors.
  std::vector<std::int64_t> stacked = {};
  std::optional<Limits> limits = {};
  bool may_be_new = false;  // weights of another model may lack it (train --from): it starts as in a new run

  bool decays() const { return shape.rank >= 2; }
};

// Elements [begin, begin + count) of the flat buffers: a bucket, a rank's piece of one, or what a checkpoint's share
// holds.
struct FlatRange {
  std::int64_t begin = 0, count = 0;
  bool decays = false;  // its elements have weight decay; never mixed within a bucket or a piece

  std::int64_t end() const { return begin + count; }
  Tensor of(const Tensor& flat) const { return flat.slice(0, begin, end()); }
};

class ParameterSet {
 public:
  static constexpr std::int64_t alignment = 64;         // elements
  static constexpr std::int64_t bucket_size = 8 << 20;  // elements, a minimum if there are enough

  // Declares a parameter; the reference stays valid. Names are unique.
  Parameter& add(std::string name, const Shape& shape, Init init);

  // Lays the slices out, after the last add. Calling it again with another number of ranks only moves padding. Buckets
  // are filled from the last parameter to the first, the order in which the backward pass completes gradients.
  void lay_out(int ranks = 1, std::int64_t bucket = bucket_size);
  // Points every parameter at its slice of these flat buffers of flat_size() elements; `low_precision`, when given,
  // is the low-precision copy. Null data pointers are allowed while planning.
  void bind(const Tensor& master, const Tensor& gradient, const Tensor& low_precision = {});
  // Writes initial values into the (host) masters. The random numbers are counter-based, so all ranks get the same
  // values.
  void initialise(std::uint64_t seed);

  std::int64_t count() const { return count_; }                       // without padding: what the paper reports
  std::int64_t flat_size() const { return flat_size_; }               // with padding
  std::int64_t decayed_size() const { return decayed_; }              // [0, decayed_size) of the flat buffer decays
  const std::vector<FlatRange>& buckets() const { return buckets_; }  // in flat order
  // A rank's pieces, one of each bucket.
  std::vector<FlatRange> pieces(int rank, int ranks) const;
  // A whole flat buffer: the part that decays and the part that does not.
  std::vector<FlatRange> everything() const { return {{0, decayed_, true}, {decayed_, flat_size_ - decayed_, false}}; }
  const std::deque<Parameter>& all() const { return parameters_; }
  std::deque<Parameter>& all() { return parameters_; }

 private:
  std::deque<Parameter> parameters_;
  std::vector<FlatRange> buckets_;
  std::int64_t count_ = 0, flat_size_ = 0, decayed_ = 0;
};

}  // namespace longstride
