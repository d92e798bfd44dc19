// Lines of `bench attention --memory M`: Transformer-XL's attention (kernels/distance_attention) of a recipe's context
// to itself and to M positions before it, with a table of distances and biases of every head.
#pragma once
#include "kernels/distance_attention/distance_attention.h"
#include "launch/bench/bench_device.h"

namespace longstride {

struct DistanceShape {
  std::int64_t batch, queries, keys, heads, key_size, value_size;
};

// The memory of the calls; over an arena without memory it plans them.
class DistanceBench {
 public:
  DistanceBench(Context& ctx, const DistanceShape& shape);
  // Reserves what fill() and the calls need, while planning.
  void plan(Context& ctx) const;
  void fill(BenchDevice& device) const;
  void report(BenchDevice& device, int repeats, BenchReport& report) const;

 private:
  kernels::DistanceAttentionArgs forward() const;
  kernels::DistanceAttentionBackwardArgs backward() const;

  DistanceShape shape_;
  Scratch scratch_;
  Tensor q_, k_, v_, o_, lse_, dout_, dq_, dk_, dv_, table_, dtable_, biases_, dbiases_;
};

}  // namespace longstride
