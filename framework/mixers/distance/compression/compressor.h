// Compression of rows that leave a layer's memory: every `rate` of them become one row of the compressed memory (Rae et
// al. 2020, Compressive Transformer, section 3.2). With E the n rows that leave, one after another:
//   mean, max     row r: the mean or the largest, element by element, of E[r rate .. (r + 1) rate - 1]
//   convolution   W [E[r rate]; ..; E[(r + 1) rate - 1]], without a bias
//   dilated       W [E[r]; E[r + n / rate]; E[r + 2 n / rate]; ..]
//   most_used     the n / rate rows that received the most attention, in their order
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/mixers/distance/config.h"

namespace longstride {

class Compressor {
 public:
  // Declares `name`.weight (width, rate width), normal with this standard deviation, if the compression learns.
  Compressor(ParameterSet& parameters, const std::string& name, std::int64_t width, double deviation,
             const MemoryConfig& config);

  bool learns() const { return weight_ != nullptr; }
  bool reads_usage() const { return config_.compressed > 0 && config_.compress == Compression::most_used; }
  // evicted (batch, n, width), `usage` (batch, n, heads) if it is read: (batch, n / rate, width) in scratch.
  Tensor compress(Context& ctx, const Tensor& evicted, const Tensor& usage, Scratch& scratch) const;
  // Adds the gradient of W, given that of the compressed rows.
  void add_gradient(Context& ctx, const Tensor& evicted, const Tensor& drows) const;

 private:
  // The rows that make one row, next to each other: (batch, n / rate, rate width).
  Tensor gathered(Context& ctx, const Tensor& evicted, Scratch& scratch) const;

  MemoryConfig config_;
  Parameter* weight_ = nullptr;
};

}  // namespace longstride
