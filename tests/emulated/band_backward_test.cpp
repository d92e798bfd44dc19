// The kernel of attention backward over bands of small heads, run on emulated blocks.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/band/band_backward_small_sm90.cu"
#include "kernels/attention/sm90/row_maps_cuda.cpp"
#include "tests/kernels/attention_patterns.h"
#include "tests/support/as_good_as_naive.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

// q, k and v side by side in every row, as in the model, and so their gradients.
class EmulatedCall {
 public:
  EmulatedCall(const PatternConfig& pattern, const AttentionShape& shape)
      : shape_(shape), pattern_(pattern), plan_(make_plan(pattern, 0, shape.heads, shape.n)), in_(shape, Dtype::bf16) {
    const auto masks = masks_of(pattern, shape.heads, 0, shape.n);
    naive_ = dense_attention<float>(in_, masks, Dtype::bf16);
    exact_ = dense_attention<double>(in_, masks, Dtype::f64);
    inputs_.resize(2 * in_.q.size() + in_.v.size());
    gradients_.resize(inputs_.size());
    const std::vector<double>* from[] = {&in_.q, &in_.k, &in_.v};
    for (int which = 0; which < 3; ++which)
      for (std::int64_t r = 0; r < shape.batch * shape.n; ++r)
        for (std::int64_t x = 0; x < width(which); ++x)
          inputs_[at(which, r, x)] = half((*from[which])[static_cast<std::size_t>(r * width(which) + x)]);
    for (double x : naive_.o) o_.push_back(half(x));
    for (double x : in_.dout) dout_.push_back(half(x));
    lse_.assign(exact_.lse.begin(), exact_.lse.end());
  }

  // The three gradients as they are in memory, from a GPU of this many multiprocessors and events in the seed's order.
  std::vector<__nv_bfloat16> run(int multiprocessors, std::uint64_t seed) {
    std::fill(gradients_.begin(), gradients_.end(), __nv_bfloat16{0xFFFF});
    cuda::emulation = {seed, multiprocessors, 0};
    const Tensor o = rows(o_.data(), width(2), shape_.value_size),
                 dout = rows(dout_.data(), width(2), shape_.value_size);
    AttentionBackwardArgs args{plan_.get(),
                               slice(inputs_, 0),
                               slice(inputs_, 1),
                               slice(inputs_, 2),
                               o,
                               Tensor(lse_.data(), Dtype::f32, {shape_.batch, shape_.heads, shape_.n}),
                               dout,
                               slice(gradients_, 0),
                               slice(gradients_, 1),
                               slice(gradients_, 2),
                               shape_.scale(),
                               {},
                               AttentionPath::sm90};
    cuda::sm90::BandPlan band;
    if (!cuda::sm90::find_band(*plan_, band)) ADD_FAILURE() << "not a band";
    cuda::sm90::attention_backward_band_small(args, band, Launch{});
    EXPECT_LE(cuda::emulation.most_shared, std::size_t{cuda::sm90::shared_of_block});
    return gradients_;
  }
  void expect_as_good_as_naive(const std::vector<__nv_bfloat16>& gradients, const std::string& where) const {
    const auto of = [&](int which) {
      std::vector<double> out;
      for (std::int64_t r = 0; r < shape_.batch * shape_.n; ++r)
        for (std::int64_t x = 0; x < width(which); ++x)
          out.push_back(static_cast<double>(cuda::to_float(gradients[at(which, r, x)])));
      return out;
    };
    kernels::expect_as_good_as_naive("dq", of(0), naive_.dq, exact_.dq, Dtype::bf16, exact_.dq_terms, where);
    kernels::expect_as_good_as_naive("dk", of(1), naive_.dk, exact_.dk, Dtype::bf16, exact_.dk_terms, where);
    kernels::expect_as_good_as_naive("dv", of(2), naive_.dv, exact_.dv, Dtype::bf16, exact_.dv_terms, where);
  }

 private:
  static __nv_bfloat16 half(double x) { return __float2bfloat16_rn(static_cast<float>(x)); }
  std::int64_t size(int which) const { return which < 2 ? shape_.key_size : shape_.value_size; }
  std::int64_t width(int which) const { return shape_.heads * size(which); }
  std::int64_t row() const { return 2 * width(0) + width(2); }
  std::size_t at(int which, std::int64_t r, std::int64_t x) const {
    return static_cast<std::size_t>(r * row() + which * width(0) + x);
  }
  Tensor rows(__nv_bfloat16* data, std::int64_t row, std::int64_t size) const {
    return {data, Dtype::bf16, {shape_.batch, shape_.n, shape_.heads, size}, {shape_.n * row, row, size, 1}};
  }
  Tensor slice(std::vector<__nv_bfloat16>& x, int which) const {
    return rows(x.data() + which * width(0), row(), size(which));
  }

  AttentionShape shape_;
  PatternConfig pattern_;
  std::shared_ptr<const AttentionPlan> plan_;
  AttentionInput in_;
  AttentionResult naive_, exact_;
  std::vector<__nv_bfloat16> inputs_, gradients_, o_, dout_;
  std::vector<float> lse_;
};

PatternConfig window(std::int64_t keys) { return pattern_of(merged, {local}, 0, {}, keys); }
PatternConfig columns(std::int64_t stride) { return pattern_of(merged, {column}, stride); }
PatternConfig blocks(std::int64_t length) { return pattern_of(merged, {fixed_block}, length); }

// One to five key tiles that see one another, ragged ends, runs and chains of segments. Whatever the order of events
// and the division between blocks, the bits are the same.
TEST(EmulatedBandBackward, EveryShapeIsAsGoodAsNaiveInEveryOrder) {
  for (const auto& [name, pattern, n, size] :
       {std::tuple{"local 1", window(1), 900, 32}, std::tuple{"local 64", window(64), 200, 32},
        std::tuple{"local 65", window(65), 321, 24}, std::tuple{"local 128", window(128), 450, 32},
        std::tuple{"local 192", window(192), 500, 16}, std::tuple{"local 250", window(250), 640, 32},
        std::tuple{"block 100", blocks(100), 333, 32}, std::tuple{"block 256", blocks(256), 400, 32},
        std::tuple{"column 3", columns(3), 400, 32}, std::tuple{"column 7", columns(7), 500, 32},
        std::tuple{"column 30", columns(30), 700, 32}}) {
    const std::string where = std::string(name) + ", n " + std::to_string(n);
    EmulatedCall call(pattern, {1, n, 1, size, 32});
    const std::vector<__nv_bfloat16> first = call.run(1, 1);
    call.expect_as_good_as_naive(first, where);
    for (const auto& [multiprocessors, seed] : {std::pair{1, 2}, {3, 3}, {8, 4}}) {
      const std::vector<__nv_bfloat16> again = call.run(multiprocessors, static_cast<std::uint64_t>(seed));
      EXPECT_EQ(std::memcmp(first.data(), again.data(), first.size() * 2), 0)
          << where << ", multiprocessors " << multiprocessors << ", seed " << seed;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace longstride::kernels
