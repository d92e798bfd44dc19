// The part of a score that depends on the distance of its pair: the vectors T and the biases u and v of
//   score = scale [(q + u) . k + (q + v) . T[distance]]   (Dai et al. 2019, section 3.3; Sukhbaatar et al. 2019, Eq. 3)
#pragma once
#include <algorithm>
#include <string>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/mixers/distance/config.h"

namespace longstride {

struct DistanceShape {
  std::int64_t width = 0, heads = 0, key_size = 0;
  double deviation = 0, table_deviation = 0;  // initial values of matrices, and of learned tables; biases start at 0
};

// The parameters that all layers share; null where a layer has its own, or none.
struct SharedDistance {
  Parameter *table = nullptr, *content_bias = nullptr, *position_bias = nullptr;
};

// Declares `prefix`distance.table (distances, key size) if `shared_table`, and distance.{content,position}_bias (heads
// key size) if the model shares the biases. Before the layers, so that their gradients count as final after all of
// them.
SharedDistance declare_shared_distance(ParameterSet& parameters, const std::string& prefix, const DistanceShape& shape,
                                       const DistanceConfig& config);

class DistanceTerm {
 public:
  // Declares what is the layer's own: `name`.distance.weight (heads key size, width) of a sinusoid,
  // `name`.distance.table (distances, heads, key size), `name`.{content,position}_bias (heads key size).
  DistanceTerm(ParameterSet& parameters, const std::string& name, const DistanceShape& shape,
               const DistanceConfig& config, const SharedDistance& shared);

  // T of the distances among `keys` positions: (distances, heads or 1, key size) of the compute type, on the tape or in
  // scratch; absent without a table.
  Tensor table(Context& ctx, std::int64_t keys, Scratch& scratch, Tape* tape) const;
  // The shape of table(), without data.
  Tensor table_shape(std::int64_t keys) const;
  // Where the gradient of T is to be added: memory of the exact type, which may be the parameter's own.
  Tensor gradient_for(Context& ctx, const Tensor& table, Scratch& scratch) const;
  // Adds what gradient_for() has received to the gradients of parameters.
  void add_gradient(Context& ctx, const Tensor& gradient) const;

  bool has_content_bias() const { return content_bias_ != nullptr; }
  bool has_position_bias() const { return position_bias_ != nullptr; }
  // u and v, and their gradients; absent without biases.
  Tensor content_bias() const { return of(content_bias_, &Parameter::master); }
  Tensor position_bias() const { return of(position_bias_, &Parameter::master); }
  Tensor content_gradient() const { return of(content_bias_, &Parameter::gradient); }
  Tensor position_gradient() const { return of(position_bias_, &Parameter::gradient); }

 private:
  static Tensor of(const Parameter* p, Tensor Parameter::*which) { return p == nullptr ? Tensor{} : p->*which; }
  bool starts_at_one() const { return config_.first_distance() == 1; }
  // Without the rows that an evaluation does not read.
  Tensor clamped(const Tensor& table) const;
  std::int64_t sinusoid_rows(std::int64_t keys) const {
    return config_.distances > 0 ? std::min(config_.distances, keys) : keys;
  }
  std::int64_t table_heads() const { return config_.shared_table ? 1 : shape_.heads; }
  Tensor sinusoid(Context& ctx, std::int64_t rows, Scratch& scratch) const;

  DistanceShape shape_;
  DistanceConfig config_;
  Parameter* weight_ = nullptr;  // W_r
  Parameter* table_ = nullptr;
  Parameter *content_bias_ = nullptr, *position_bias_ = nullptr;
};

}  // namespace longstride
