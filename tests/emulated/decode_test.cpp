// Decoding kernels of both kinds of attention on emulated blocks, next to the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention/decode/decode.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"
#include "kernels/distance_attention/decode/distance_decode.h"
#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {
namespace {

constexpr std::int64_t batch = 1, n = 50, heads = 2, size = 40, value_size = 72;

// Values between -1 and 1 of a tensor that a CPU or an emulated block reads.
template <class T>
struct Drawn {
  std::vector<T> x;
  Tensor tensor;

  Drawn(const Shape& shape, std::uint32_t stream) : x(static_cast<std::size_t>(shape.count())) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<T>(static_cast<float>(philox(5, i, stream, domain_of(Purpose::test, 0)).word[0]) * 0x1p-31f -
                            1.0f);
    tensor = Tensor(x.data(), DtypeOf<T>::value, shape);
  }
};

// The rows of o, one position after another, of one kind of attention.
template <class Plan, class Cache, class Append, class Decode, class T>
std::vector<double> rows_of_all(const Plan& plan, Append&& append, Decode&& decode, T) {
  Drawn<T> q({batch, n, heads, size}, 1), k({batch, n, heads, size}, 2), v({batch, n, heads, value_size}, 3),
      keys({batch, plan.rows, size}, 4), values({batch, plan.rows, value_size}, 5), o({batch, n, heads, value_size}, 6);
  const Cache cache{&plan, keys.tensor, values.tensor};
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = [&](Drawn<T>& rows) { return rows.tensor.slice(1, i, i + 1); };
    append(cache, at(k), at(v), i);
    decode(cache, at(q), at(o), i);
  }
  return {o.x.begin(), o.x.end()};
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = std::abs(a[i] - b[i]);
    largest = e > largest || std::isnan(e) ? e : largest;
  }
  return largest;
}

// run(type, on a GPU) gives all rows. One step of f32 is what another order of sums may cause.
template <class F>
void expect_as_good_as_cpu(F&& run, const std::string& where) {
  const std::vector<double> exact = run(double{}, false), naive = run(float{}, false), found = run(float{}, true);
  EXPECT_LE(largest_difference(found, exact), 2 * largest_difference(naive, exact) + 0x1p-23) << where;
}

TEST(EmulatedDecode, IsAsGoodAsTheCpu) {
  using enum PartKind;
  for (const PatternConfig& pattern : {pattern_of(Integration::merged, {local, column}, 7),
                                       pattern_of(Integration::merged, {fixed_block, fixed_summary}, 16, {3}),
                                       pattern_of(Integration::merged, {dense}, 0)}) {
    const auto plan = make_decode_plan(*make_plan(pattern, 0, heads, n));
    expect_as_good_as_cpu(
        [&](auto type, bool on_gpu) {
          return rows_of_all<DecodePlan, DecodeCache>(
              *plan,
              [&](const DecodeCache& cache, const Tensor& k, const Tensor& v, std::int64_t i) {
                (on_gpu ? cuda::append : cpu::append)({cache, k, v, i}, {});
              },
              [&](const DecodeCache& cache, const Tensor& q, const Tensor& o, std::int64_t i) {
                (on_gpu ? cuda::decode : cpu::decode)({cache, q, o, i, 0.3}, {});
              },
              type);
        },
        "part " + std::to_string(static_cast<int>(pattern.parts[0])));
  }
}

TEST(EmulatedDecode, WithDistancesIsAsGoodAsTheCpu) {
  for (const bool spans : {false, true}) {
    DecodedStream stream{.positions = n, .segment = 20, .memory = 25, .dilation = {1, 3}};
    if (spans) stream.window = 30;
    const auto plan = make_distance_decode_plan(stream);
    expect_as_good_as_cpu(
        [&](auto type, bool on_gpu) {
          using T = decltype(type);
          Drawn<T> table({33, heads, size}, 7), u({heads, size}, 8), w({heads, size}, 9), span({heads}, 10);
          span.x = {static_cast<T>(0.3), static_cast<T>(0.9)};
          return rows_of_all<DistanceDecodePlan, DistanceCache>(
              *plan,
              [&](const DistanceCache& cache, const Tensor& k, const Tensor& v, std::int64_t i) {
                (on_gpu ? cuda::distance_append : cpu::distance_append)({cache, k, v, i}, {});
              },
              [&](const DistanceCache& cache, const Tensor& q, const Tensor& o, std::int64_t i) {
                DistanceDecodeArgs args{cache, q, o, table.tensor, u.tensor, w.tensor};
                if (spans) args.span = Tensor(span.x.data(), DtypeOf<T>::value, {heads});
                args.longest_span = 40;
                args.ramp = 11;
                args.scale = 0.3;
                args.position = i;
                (on_gpu ? cuda::distance_decode : cpu::distance_decode)(args, {});
              },
              type);
        },
        spans ? "spans" : "no spans");
  }
}

}  // namespace
}  // namespace longstride::kernels
