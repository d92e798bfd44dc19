// A call of attention with a distance term and its backward pass on emulated blocks, compared with the dense
// computation.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"
#include "kernels/distance_attention/distance_attention.h"
#include "tests/ops/dense_distance_attention.h"

namespace longstride::testing {

// A tensor in the memory of the host, of values rounded to its type.
struct Values {
  Values(const kernels::Shape& shape, Dtype dtype, const std::vector<double>& values)
      : raw(encoded(values, dtype)), tensor(raw.data(), dtype, shape) {}
  std::vector<double> found() const { return decoded(raw, tensor.dtype()); }

  std::vector<std::byte> raw;
  kernels::Tensor tensor;
};

// Operands of one type, and f32 where the op asks for the exact type.
class EmulatedDistance {
  using Shape = kernels::Shape;
  using Tensor = kernels::Tensor;

 public:
  // `draw`: which of many random inputs.
  explicit EmulatedDistance(const DistanceCase& c, std::uint32_t draw = 0, Dtype dtype = Dtype::bf16,
                            kernels::AttentionPath path = kernels::AttentionPath::automatic)
      : c_(c),
        dtype_(dtype),
        path_(path),
        queries_({c.batch, c.n_q, c.heads, c.size}),
        keys_({c.batch, c.n_k, c.heads, c.size}),
        values_({c.batch, c.n_k, c.heads, c.value_size}),
        outputs_({c.batch, c.n_q, c.heads, c.value_size}),
        table_({std::max<std::int64_t>(c.distances, 1), c.tables, c.size}),
        bias_({c.heads, c.size}),
        in_{random(queries_, 1 + 100 * draw),
            random(keys_, 2 + 100 * draw),
            random(values_, 3 + 100 * draw),
            random(outputs_, 4 + 100 * draw),
            c.distances > 0 ? random(table_, 5 + 100 * draw) : std::vector<double>(),
            random(bias_, 6 + 100 * draw),
            random(bias_, 7 + 100 * draw)},
        exact_(dense_distance_attention<double>(c, in_, dtype)),
        naive_(dense_distance_attention<float>(c, in_, dtype)) {}

  // On a GPU of this many multiprocessors, with events in the seed's order.
  DistanceResult<double> run(int multiprocessors, std::uint64_t seed) {
    kernels::cuda::emulation = {seed, multiprocessors};
    using namespace kernels;
    Values q(queries_, dtype_, in_.q), k(keys_, dtype_, in_.k), v(values_, dtype_, in_.v),
        dout(outputs_, dtype_, in_.dout), table(table_, dtype_, or_zero(in_.table, c_.tables * c_.size)),
        u(bias_, Dtype::f32, in_.content_bias), w(bias_, Dtype::f32, in_.position_bias),
        span({c_.heads}, Dtype::f32, or_zero(c_.span, c_.heads)),
        first_key({c_.batch}, Dtype::i32, or_zero(c_.first_key, c_.batch)),
        begin(lse_shape(), Dtype::i32, or_zero(bounds_of(c_, false), lse_shape().count())),
        end(lse_shape(), Dtype::i32, or_zero(bounds_of(c_, true), lse_shape().count()));
    Values o = unset(outputs_, dtype_), lse = unset(lse_shape(), Dtype::f32), dq = unset(queries_, dtype_),
           dk = unset(keys_, dtype_), dv = unset(values_, dtype_);
    Values dtable = zeros(table_), du = zeros(bias_), dw = zeros(bias_), dspan = zeros({c_.heads});
    DistanceScores scores{.q = q.tensor, .k = k.tensor};
    if (c_.distances > 0) scores.table = table.tensor;
    if (c_.biases) scores.content_bias = u.tensor;
    if (c_.biases && c_.distances > 0) scores.position_bias = w.tensor;
    if (!c_.span.empty()) scores.span = span.tensor;
    scores.longest_span = c_.longest_span;
    scores.ramp = c_.ramp;
    if (!c_.first_key.empty()) scores.first_key = first_key.tensor;
    scores.window = c_.window;
    scores.self = c_.self;
    scores.dilation = c_.dilation;
    scores.scale = c_.scale();
    scores.path = path_;
    if (c_.document > 0) scores.bounds = {begin.tensor, end.tensor};
    const std::int64_t step = dropout_step;
    scores.dropout = {c_.p, dropout_seed, dropout_layer, &step, dropout_first_sequence};
    DistanceAttentionArgs forward{scores, v.tensor, o.tensor, lse.tensor};
    DistanceAttentionBackwardArgs backward{scores,      v.tensor,  o.tensor,  lse.tensor,
                                           dout.tensor, dq.tensor, dk.tensor, dv.tensor};
    if (c_.distances > 0) backward.dtable = dtable.tensor;
    backward.dcontent_bias = du.tensor;
    if (c_.distances > 0) backward.dposition_bias = dw.tensor;
    if (!c_.span.empty()) backward.dspan = dspan.tensor;
    if (c_.saved_bytes > 0) backward.saved_bytes = c_.saved_bytes;
    const auto with_scratch = [](auto& args) {
      std::vector<float> scratch(cuda::distance_attention_scratch_bytes(args) / sizeof(float) + 1,
                                 std::numeric_limits<float>::quiet_NaN());
      args.scratch = Tensor(scratch.data(), Dtype::u8, {static_cast<std::int64_t>(scratch.size() * sizeof(float))});
      return scratch;
    };
    const auto forward_scratch = with_scratch(forward);
    cuda::distance_attention(forward, {});
    const auto backward_scratch = with_scratch(backward);
    cuda::distance_attention_backward(backward, {});
    return {o.found(),  lse.found(), dq.found(),
            dk.found(), dv.found(),  c_.distances > 0 ? dtable.found() : std::vector<double>(),
            du.found(), dw.found(),  dspan.found()};
  }

  // Twice the largest error of the naive computation, and what another order of sums may cause.
  std::vector<double> allowed_errors() const {
    const auto naive = parts(naive_);
    const auto exact = parts(exact_);
    std::vector<double> allowed;
    for (std::size_t i = 0; i < part_names.size(); ++i) {
      const Dtype dtype = in_own_type[i] ? dtype_ : Dtype::f32;
      double magnitude = 0;
      for (const double x : exact[i]) magnitude = std::isinf(x) ? magnitude : std::max(magnitude, std::abs(x));
      allowed.push_back(2 * largest_error(naive[i], exact[i], dtype) +
                        magnitude * (dtype == Dtype::f32 ? 32 : 2) * half_step_of(dtype));
    }
    return allowed;
  }
  std::vector<double> errors_of(const DistanceResult<double>& result) const {
    const auto found = parts(result), exact = parts(exact_);
    std::vector<double> errors;
    for (std::size_t i = 0; i < found.size(); ++i) errors.push_back(largest_error(found[i], exact[i], Dtype::f64));
    return errors;
  }
  static inline const std::vector<std::string> part_names = {
      "o", "lse", "dq", "dk", "dv", "dtable", "dcontent_bias", "dposition_bias", "dspan"};

 private:
  // Sums of twelve uniform numbers, which are about normal.
  static std::vector<double> random(const Shape& shape, std::uint32_t stream) {
    std::vector<double> x(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      double sum = -6;
      for (std::uint64_t j = 0; j < 3; ++j)
        for (const std::uint32_t word :
             kernels::philox(3, 3 * i + j, stream, kernels::domain_of(kernels::Purpose::test, 0)).word)
          sum += word * 0x1p-32;
      x[i] = rounded(sum, Dtype::bf16);
    }
    return x;
  }
  static std::vector<double> or_zero(const std::vector<double>& x, std::int64_t count) {
    return x.empty() ? std::vector<double>(static_cast<std::size_t>(count)) : x;
  }
  static Values unset(const Shape& shape, Dtype dtype) {
    const auto count = static_cast<std::size_t>(shape.count());
    return {shape, dtype, std::vector<double>(count, std::numeric_limits<double>::infinity())};
  }
  static Values zeros(const Shape& shape) { return {shape, Dtype::f32, or_zero({}, shape.count())}; }

  static constexpr bool in_own_type[] = {true, false, true, true, true, false, false, false, false};
  template <class T>
  static std::vector<std::vector<T>> parts(const DistanceResult<T>& r) {
    return {r.o, r.lse, r.dq, r.dk, r.dv, r.dtable, r.dcontent_bias, r.dposition_bias, r.dspan};
  }
  // The largest error of the results, rounded to a type.
  template <class T>
  static double largest_error(const std::vector<T>& found, const std::vector<double>& exact, Dtype dtype) {
    double error = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double x = rounded(static_cast<double>(found[i]), dtype);
      if (x == exact[i]) continue;  // also infinities
      const double e = std::abs(x - exact[i]);
      error = e > error || std::isnan(e) ? e : error;
    }
    return error;
  }

  Shape lse_shape() const { return {c_.batch, c_.heads, c_.n_q}; }

  DistanceCase c_;
  Dtype dtype_;
  kernels::AttentionPath path_;
  Shape queries_, keys_, values_, outputs_, table_, bias_;
  DistanceValues in_;
  DistanceResult<double> exact_;
  DistanceResult<float> naive_;
};

inline void expect_at_most(const std::vector<double>& allowed, const std::vector<double>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i)
    EXPECT_TRUE(errors[i] <= allowed[i]) << EmulatedDistance::part_names[i] << ": " << errors[i] << " > " << allowed[i];
}

// Where one pair makes most of an error, chance decides whose is larger: then the sums over several inputs are
// compared. first: errors for the first input, if they are known.
inline void expect_as_good_as_naive(const DistanceCase& c, Dtype dtype, kernels::AttentionPath path, std::uint64_t seed,
                                    const std::vector<double>& first = {}) {
  SCOPED_TRACE(c.name + ", " + name_of(dtype));
  std::vector<double> errors(EmulatedDistance::part_names.size()), allowed = errors;
  const auto exceed = [&] {
    for (std::size_t i = 0; i < errors.size(); ++i)
      if (!(errors[i] <= allowed[i])) return true;
    return false;
  };
  const auto add = [](std::vector<double>& to, const std::vector<double>& more) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
  };
  for (std::uint32_t draw = 0; draw == 0 || (draw < 5 && exceed()); ++draw) {
    EmulatedDistance call(c, draw, dtype, path);
    add(errors, draw == 0 && !first.empty() ? first : call.errors_of(call.run(3, seed)));
    add(allowed, call.allowed_errors());
  }
  expect_at_most(allowed, errors);
}

}  // namespace longstride::testing
