// The kernels of features on emulated blocks, compared with the CPU's.
#include "kernels/features/features.h"

#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "tests/ops/as_exact.h"
#include "tests/ops/scan/scan_input.h"

namespace longstride::testing {
namespace {

using kernels::Device;
using kernels::Direction;
using kernels::FeatureKind;
using kernels::Tensor;

struct FeatureShape {
  FeatureKind kind;
  bool keys, both, groups, handed;
  std::int64_t batch = 2, n = 300, heads = 2, d = 16, m = 24, projections = 2;

  bool decays() const { return keys && !both && kind != FeatureKind::relu; }
  Shape x() const { return {batch, n, heads, d}; }
  Shape features() const { return {batch, n, heads, kernels::features_of(kind, m)}; }
};

// Tensors of a call whose rows are of type `compute`, and all others of type `exact`.
class FeatureRun {
 public:
  FeatureRun(const FeatureShape& s, Dtype compute, Dtype stored, Dtype exact) : s_(s), stored_(stored) {
    const auto rounded_normals = [&](const Shape& shape, Dtype type, std::uint32_t stream) {
      return scan_normals(shape, type, stream);
    };
    x_ = tensor(rounded_normals(s.x(), compute, 1), s.x(), stored);
    const Shape projection{s.projections, s.m, s.d};
    projection_ = tensor(rounded_normals(projection, Dtype::f32, 2), projection, exact);
    features_ = tensor({}, s.features(), stored);
    if (s.decays()) decay_ = tensor({}, {s.batch, s.n, s.heads}, exact);
    if (s.decays() && s.handed) {
      const double none = -std::numeric_limits<double>::infinity();
      first_c_ = tensor({none, 0.5, 3, -0.25}, {2, 2}, exact).reshape({4}).slice(0, 0, s.batch * s.heads);
      last_c_ = tensor({}, {s.batch, s.heads}, exact);
    }
    if (!s.groups) return;
    const std::vector<std::int32_t> bounds = drawn_bounds(ScanShape{.batch = s.batch, .n = s.n});
    begin_ = tensor({bounds.begin(), bounds.end()}, {s.batch, 1, s.n}, Dtype::i32);
  }
  void run(Device device) {
    kernels::FeaturesArgs args{.kind = s_.kind,
                               .x = x_,
                               .projection = projection_,
                               .features = features_,
                               .keys = s_.keys,
                               .decay = decay_,
                               .begin = begin_,
                               .first_c = first_c_,
                               .last_c = last_c_,
                               .direction = s_.both ? Direction::both : Direction::past};
    args.check(device);
    const Tensor scratch = args.scratch_on(device);
    args.scratch = tensor({}, scratch.shape(), scratch.dtype());
    kernels::launch_on(device, args, {});
  }
  // From given features and their gradients, which a run on a GPU has rounded.
  void run_backward(Device device, const std::vector<double>& features, const std::vector<double>& dfeatures) {
    dx_ = tensor({}, s_.x(), stored_);
    const kernels::FeaturesBackwardArgs args{
        s_.kind, x_, projection_, tensor(features, s_.features(), stored_), tensor(dfeatures, s_.features(), stored_),
        dx_};
    args.check(device);
    kernels::launch_on(device, args, {});
  }
  static std::vector<double> values(const Tensor& x) {
    if (!x.given()) return {};
    const auto* bytes = x.as<const std::byte>();
    return decoded({bytes, bytes + x.bytes()}, x.dtype());
  }
  std::vector<double> features() const { return values(features_); }
  std::vector<double> decay() const { return values(decay_); }
  std::vector<double> last_c() const { return values(last_c_); }
  std::vector<double> dx() const { return values(dx_); }

 private:
  Tensor tensor(const std::vector<double>& given, const Shape& shape, Dtype type) {
    const auto count = static_cast<std::size_t>(shape.count());
    const std::vector<std::byte> raw = encoded(given.empty() ? std::vector<double>(count) : given, type);
    memory_.emplace_back(raw.size() / 16 + 1);
    std::memcpy(memory_.back().data(), raw.data(), raw.size());
    if (given.empty()) std::memset(memory_.back().data(), 0xFF, raw.size());
    return {memory_.back().data(), type, shape};
  }

  struct alignas(16) Word {
    std::byte bytes[16];
  };
  FeatureShape s_;
  Dtype stored_;
  std::deque<std::vector<Word>> memory_;
  Tensor x_, projection_, features_, decay_, begin_, first_c_, last_c_, dx_;
};

class EmulatedFeaturesOften : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(In, EmulatedFeaturesOften, ::testing::Values(Dtype::f32, Dtype::bf16, Dtype::f16),
                         [](const auto& i) { return kernels::name_of(i.param); });

void expect_those_of_the_cpu(const FeatureShape& s, Dtype compute) {
  FeatureRun found(s, compute, compute, Dtype::f32), right(s, compute, Dtype::f64, Dtype::f64),
      naive(s, compute, Dtype::f32, Dtype::f32);
  found.run(Device::cuda), right.run(Device::cpu), naive.run(Device::cpu);
  expect_as_exact("features", compute, found.features(), right.features(), naive.features());
  if (s.decays()) expect_as_exact("decay", compute, found.decay(), right.decay(), naive.decay());
  if (s.decays() && s.handed) expect_as_exact("c", compute, found.last_c(), right.last_c(), naive.last_c());
  const std::vector<double> dfeatures = scan_normals(s.features(), compute, 3);
  std::vector<double> features = found.features();
  found.run_backward(Device::cuda, features, dfeatures);
  const double least = rounded(0.001, compute);  // as rounded, of no product; it may be above 0.001
  for (double& x : features) x = s.kind == FeatureKind::relu && x == least ? 0.001 : x;
  for (FeatureRun* run : {&right, &naive}) run->run_backward(Device::cpu, features, dfeatures);
  expect_as_exact("dx", compute, found.dx(), right.dx(), naive.dx());
}

TEST_P(EmulatedFeaturesOften, AreThoseOfTheCpu) {
  for (const FeatureKind kind : {FeatureKind::softmax, FeatureKind::trigonometric, FeatureKind::relu})
    for (int bits = 0; bits < 4; ++bits) {
      FeatureShape s{.kind = kind, .keys = true, .both = (bits & 1) != 0, .groups = (bits & 2) != 0, .handed = true};
      s.n = 270 + bits, s.d = bits == 1 ? 70 : 12 + bits, s.m = bits == 2 ? 70 : 17;
      s.projections = 1 + bits % 2;
      SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << ", bits " << bits);
      expect_those_of_the_cpu(s, GetParam());
      // Rows of whole words.
      s.n = 530 + bits, s.d = bits == 1 ? 72 : 8 + 8 * bits, s.m = bits == 2 ? 72 : 24;
      expect_those_of_the_cpu(s, GetParam());
    }
  FeatureShape queries{.kind = FeatureKind::softmax, .keys = false, .both = false, .groups = false, .handed = false};
  queries.n = 130;
  expect_those_of_the_cpu(queries, GetParam());
  queries.d = 64, queries.m = 40;
  expect_those_of_the_cpu(queries, GetParam());
}

TEST(EmulatedFeatures, OfKeysAreThoseOfTheCpu) {
  FeatureShape s{.kind = FeatureKind::softmax,
                 .keys = true,
                 .both = false,
                 .groups = true,
                 .handed = true,
                 .batch = 1,
                 .n = 270,
                 .heads = 1,
                 .m = 17,
                 .projections = 1};
  expect_those_of_the_cpu(s, Dtype::bf16);
  // The kernels for Hopper.
  for (const FeatureKind kind : {FeatureKind::softmax, FeatureKind::relu}) {
    FeatureShape wide = s;
    wide.kind = kind, wide.n = 330, wide.heads = wide.projections = 2, wide.d = 40, wide.m = 200;
    expect_those_of_the_cpu(wide, Dtype::bf16);
    wide.keys = wide.groups = wide.handed = false, wide.d = 64, wide.m = 256;
    expect_those_of_the_cpu(wide, Dtype::bf16);
  }
  // Several segments of running maxima, with and without groups that begin in them.
  s.n = 2 * kernels::running_segment + 300, s.d = 8, s.m = 8;
  expect_those_of_the_cpu(s, Dtype::bf16);
  s.groups = false;
  expect_those_of_the_cpu(s, Dtype::bf16);
  s.groups = s.both = true;
  expect_those_of_the_cpu(s, Dtype::bf16);
}

TEST(EmulatedProjection, IsThatOfTheCpu) {
  using enum kernels::Orthogonality;
  for (const kernels::Orthogonality orthogonal : {none, gram_schmidt, hadamard, givens}) {
    const Shape shape{2, 84, 32};
    const auto count = static_cast<std::size_t>(shape.count());
    std::vector<float> found(count), right(count);
    std::vector<double> scratch(count);
    kernels::DrawProjectionArgs args{.projection = Tensor(found.data(), Dtype::f32, shape), .seed = 5, .redraw = 3};
    args.orthogonal = orthogonal;
    args.scratch = Tensor(scratch.data(), Dtype::f64, shape);
    kernels::launch_on(Device::cuda, args, {});
    args.projection = Tensor(right.data(), Dtype::f32, shape);
    kernels::launch_on(Device::cpu, args, {});
    for (std::size_t e = 0; e < found.size(); ++e) EXPECT_NEAR(found[e], right[e], 1e-6) << e;
  }
}

}  // namespace
}  // namespace longstride::testing
