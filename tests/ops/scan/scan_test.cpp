#include "tests/ops/scan/scan_case.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::scan_test {
namespace {

using kernels::Direction;
using kernels::ScanForm;

LONGSTRIDE_OP_TESTS(ScanTest);

// A GPU solves a system per chunk, which is less exact where keys of few channels are alike (scan.h).
bool solves(kernels::Device device, const ScanShape& s) {
  return device == kernels::Device::cuda && s.form == ScanForm::delta;
}

TEST_P(ScanTest, EveryFormIsAsExactAsTheRecurrence) {
  std::int64_t drawn = 0;
  for (ScanShape s : scan_shapes())
    for (const std::int64_t n : {1, 260}) {
      s.n = n + drawn++ % 3;
      s.batch = 1 + drawn % 2, s.heads = 1 + drawn % 3;
      s.key_size = 1 + drawn * 7 % 20 + (solves(device(), s) ? 16 : 0), s.value_size = 1 + drawn * 5 % 19;
      expect_the_recurrence(s);
    }
}

TEST_P(ScanTest, HeadsOf16To128AndStatesOf256AreAsExactAsTheRecurrence) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {
      {16, 16}, {64, 64}, {128, 128}, {256, 64}, {128, 40}};
  std::size_t drawn = 0;
  for (ScanShape s : scan_shapes()) {
    if (s.groups != s.states || s.normalised) continue;
    const auto [key_size, value_size] = sizes[drawn++ % sizes.size()];
    s.n = 150, s.key_size = key_size, s.value_size = value_size;
    expect_the_recurrence(s);
  }
  for (const auto& [key_size, value_size] : {std::pair{256, 64}, {200, 40}})
    for (const bool known : {false, true}) {
      ScanShape performer{ScanForm::gated, ScanDecay::head, true, false, true, true};
      const bool gpu = device() == kernels::Device::cuda;  // a CPU has no kernels of their own for these
      performer.n = gpu ? 700 : 260, performer.batch = performer.heads = gpu ? 2 : 1, performer.run = gpu ? 512 : 0;
      performer.key_size = key_size, performer.value_size = value_size, performer.known = known;
      if (kernels::bytes_of(compute()) != 2) performer.run = 0;
      expect_the_recurrence(performer);
    }
}

// Up to more than a wave of chunks of the backward pass.
TEST_P(ScanTest, RaggedLengthsAreAsExactAsTheRecurrence) {
  for (ScanShape s : {ScanShape{ScanForm::sum, ScanDecay::none, true, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::head, true, false, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::channel, false, false, false, true},
                      ScanShape{ScanForm::delta, ScanDecay::head, false, false, true, true}})
    for (const std::int64_t n : {2, 63, 128, 129, 256, 700, 2300}) {
      s.n = n, s.key_size = solves(device(), s) ? 25 : 9, s.value_size = 6;
      expect_the_recurrence(s);
    }
}

// No exponent of a sum of logarithms is ever positive, so strong decays neither overflow nor give NaN.
TEST_P(ScanTest, StrongDecaysAreAsExactAsTheRecurrence) {
  for (ScanShape s : scan_shapes()) {
    if (s.decay == ScanDecay::none || !s.groups || !s.states) continue;
    s.n = 260, s.strength = 40, s.key_size = s.value_size = 8;
    expect_the_recurrence(s);
  }
}

// A GPU scales rows by decays that are weak over every chunk of a run, and takes products of those.
TEST_P(ScanTest, WeakDecaysPerChannelAreAsExactAsTheRecurrence) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{64, 64}, {33, 21}, {128, 16}, {16, 128}};
  // In f32, which takes other kernels, exponentials of equal decays are off by the same bit hundreds of times, and the
  // comparison is with a loop in which they may be right.
  if (kernels::bytes_of(compute()) != 2) GTEST_SKIP() << "only walks, of 16 bits, tell weak decays from strong ones";
  std::int64_t drawn = 0;
  for (const auto& [key_size, value_size] : sizes)
    for (const double strength : {0.0, 0.02, 0.4}) {  // the last is strong in f16
      ScanShape s{ScanForm::gated, ScanDecay::channel, drawn % 2 == 1, false, false, true};
      s.n = 260 + 7 * drawn, s.run = 128 << drawn % 3;
      s.key_size = key_size, s.value_size = value_size, s.strength = strength, s.extremes = false;
      expect_the_recurrence(s);
      ++drawn;
    }
}

// Rows are relative to a reference that later positions of their chunk decide.
TEST_P(ScanTest, LaterWeakDecaysChangeNoBit) {
  ScanShape s{ScanForm::gated, ScanDecay::channel};
  s.n = 192, s.key_size = 24, s.value_size = 16, s.strength = 0.02, s.extremes = false;
  ScanOperands x = operands(s);
  ops::run(ctx, x.forward());
  const std::vector<double> before = x.o.found();
  const std::int64_t changed = 75;
  std::vector<double> decay = x.decay->values();
  for (std::int64_t i = changed * s.key_size; i < s.n * s.key_size; ++i) decay[static_cast<std::size_t>(i)] *= 0.37;
  x.decay = with_values(s.decays(), exact(), std::move(decay));
  ops::run(ctx, x.forward());
  const std::vector<double> after = x.o.found();
  const auto earlier = static_cast<std::ptrdiff_t>(changed * s.value_size);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + earlier, after.begin()));
  EXPECT_NE(before, after);
}

// The state handed over from one half to the other, and its gradient back.
TEST_P(ScanTest, HalvesAreTheWhole) {
  for (ScanShape s : scan_shapes()) {
    if (!s.states || s.groups) continue;
    SCOPED_TRACE(s.text());
    s.n = 384, s.key_size = 12, s.value_size = 7;
    ScanOperands whole = operands(s), x = whole;
    ops::run(ctx, whole.forward());
    ops::run(ctx, whole.backward());
    const std::vector<std::vector<std::byte>> expected = {whole.o.raw(),  whole.last_state->raw(),
                                                          whole.dq.raw(), whole.dk.raw(),
                                                          whole.dv.raw(), whole.dfirst_state->raw()};
    for (Operand* y : {&whole.o, &whole.dq, &whole.dk, &whole.dv, &*whole.last_state, &*whole.dfirst_state}) y->reset();
    Operand handed = result(s.state(), exact()), handed_back = result(s.state(), exact());
    // One sequence of one head: a run of positions is contiguous, and of whole chunks so are its states.
    const auto half = [&](auto args, std::int64_t from, std::int64_t to) {
      const auto cut = [&](Tensor& t) { t = t.given() ? t.slice(1, from, to) : t; };
      cut(args.q), cut(args.k), cut(args.v), cut(args.o), cut(args.decay), cut(args.beta);
      if (args.denominator.given()) args.denominator = args.denominator.slice(2, from, to);
      args.chunk_states = args.chunk_states.slice(1, from / kernels::scan_chunk, kernels::scan_chunks(to));
      if constexpr (requires { args.dout; })
        cut(args.dout), cut(args.dq), cut(args.dk), cut(args.dv), cut(args.ddecay), cut(args.dbeta);
      return args;
    };
    kernels::ScanArgs first = half(whole.forward(), 0, 128), second = half(whole.forward(), 128, s.n);
    first.last_state = second.first_state = handed;
    ops::run(ctx, first), ops::run(ctx, second);
    kernels::ScanBackwardArgs behind = half(whole.backward(), 128, s.n), before = half(whole.backward(), 0, 128);
    behind.dfirst_state = before.dlast_state = handed_back;
    ops::run(ctx, behind), ops::run(ctx, before);
    const std::vector<std::vector<std::byte>> found = {whole.o.raw(),  whole.last_state->raw(),
                                                       whole.dq.raw(), whole.dk.raw(),
                                                       whole.dv.raw(), whole.dfirst_state->raw()};
    EXPECT_EQ(found, expected);
  }
}

TEST_P(ScanTest, ARowOfZeroDenominatorIsZero) {
  ScanShape s{ScanForm::gated, ScanDecay::head, true};
  s.n = 200;
  ScanOperands x = operands(s);
  x.q = filled(s.keys(), compute(), 0);
  ops::run(ctx, x.forward());
  ops::run(ctx, x.backward());
  for (const Operand* y : {&x.o, &x.dq, &x.dk, &x.dv, &*x.ddecay})
    for (const double value : y->found()) ASSERT_EQ(value, 0);
}

TEST_P(ScanTest, NothingLooksAheadAndGroupsDoNotMix) {
  for (ScanShape s : scan_shapes()) {
    if (s.both || !s.groups) continue;
    SCOPED_TRACE(s.text());
    s.n = 300, s.key_size = s.value_size = 8;
    ScanOperands x = operands(s);
    ops::run(ctx, x.forward());
    const std::vector<double> before = x.o.found();
    const std::int64_t changed = 60, width = s.value_size;
    std::vector<double> v = x.v.values();
    for (std::int64_t j = 0; j < width; ++j) v[static_cast<std::size_t>(changed * width + j)] += 1;
    x.v = with_values(s.values(), compute(), std::move(v));
    ops::run(ctx, x.forward());
    const std::vector<double> after = x.o.found();
    const auto first_of = [&](std::int64_t t) { return x.input.bounds[static_cast<std::size_t>(t)]; };
    bool seen = false;
    for (std::int64_t t = 0; t < s.n; ++t)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto e = static_cast<std::size_t>(t * width + j);
        if (t < changed || first_of(t) != first_of(changed))
          ASSERT_EQ(after[e], before[e]) << t;
        else
          seen |= after[e] != before[e];
      }
    EXPECT_TRUE(seen);
  }
}

TEST_P(ScanTest, RefusesWhatItCannotCompute) {
  const auto refuses = [&](ScanShape s, auto&& change, const std::string& sentence) {
    s.n = 5;
    ScanOperands x = operands(s);
    kernels::ScanArgs args = x.forward();
    change(args, x);
    try {
      ops::run(ctx, args);
      FAIL() << "no error: " << sentence;
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(sentence), std::string::npos) << e.what();
    }
  };
  const ScanShape sum{}, gated{ScanForm::gated, ScanDecay::head}, delta{ScanForm::delta, ScanDecay::head};
  const Operand rows = filled({1, 5, 1}, exact(), 0.5), other = filled({1, 1, 16, 15}, exact(), 0),
                of_64_bits = filled({1, 5, 1}, Dtype::i64, 0);
  using Args = kernels::ScanArgs;
  using X = ScanOperands;
  refuses(
      delta, [&](Args& a, X&) { a.denominator = rows; }, "form delta cannot be normalised");
  refuses(
      delta, [&](Args& a, X&) { a.direction = Direction::both; }, "only the scan's form sum has both directions");
  refuses(
      delta, [&](Args& a, X&) { a.beta = {}; }, "form delta needs beta");
  refuses(
      gated, [&](Args& a, X&) { a.decay = {}; }, "form gated needs a decay");
  refuses(
      sum, [&](Args& a, X&) { a.decay = rows; }, "form sum takes no decay");
  refuses(
      sum, [&](Args& a, X&) { a.first_state = other; }, "first_state is (1, 1, 16, 15), but must be (1, 1, 16, 16)");
  refuses(
      sum, [&](Args& a, X&) { a.direction = Direction::both; }, "a scan in both directions has no states");
  refuses(
      sum, [&](Args& a, X& x) { a.v = x.v->slice(1, 0, 4); }, "the scan's v is (1, 4, 1, 16)");
  refuses(
      gated, [&](Args& a, X& x) { a.decay = (*x.decay)->slice(1, 0, 4); }, "decay is (1, 4, 1)");
  refuses(
      gated, [&](Args& a, X&) { a.decay = of_64_bits; }, "the scan's decay is (1, 5, 1) i64");
  // The CPU alone looks at the numbers.
  if (device() == Device::cuda) return;
  const Operand nan = filled({1, 5, 1}, exact(), std::nan("")), large = filled({1, 5, 1}, exact(), 2.5);
  refuses(
      gated, [&](Args& a, X&) { a.decay = rows; }, "decay is 0.5 at element 0, but must be a logarithm of at most 0");
  refuses(
      gated, [&](Args& a, X&) { a.decay = nan; }, "decay is nan");
  refuses(
      delta, [&](Args& a, X&) { a.beta = large; }, "beta is 2.5 at element 0, but must be from 0 to 2");
}

class ScanGradientTest : public ScanTest {};
INSTANTIATE_TEST_SUITE_P(On, ScanGradientTest, ::testing::ValuesIn(precisions, precisions + 1),
                         [](const auto& i) { return name_of(i.param); });

TEST_P(ScanGradientTest, GradientsAreFiniteDifferences) {
  for (ScanShape s : scan_shapes()) {
    SCOPED_TRACE(s.text());
    s.n = 131, s.key_size = 5, s.value_size = 3, s.extremes = false;
    ScanOperands x = operands(s);
    const auto loss = [&] {
      ops::run(ctx, x.forward());
      double sum = 0;
      const auto add = [&](const Operand& y, const Operand& dy) {
        for (std::int64_t e = 0; e < y->count(); ++e) sum += y->as<const double>()[e] * dy.at(e);
      };
      add(x.o, x.dout);
      if (x.last_state) add(*x.last_state, *x.dlast_state);
      return sum;
    };
    loss();
    ops::run(ctx, x.backward());
    constexpr std::int64_t most = 12;
    expect_gradient("q", x.q, x.dq, loss, most, 1e-6);
    expect_gradient("k", x.k, x.dk, loss, most, 1e-6);
    expect_gradient("v", x.v, x.dv, loss, most, 1e-6);
    if (x.decay) expect_gradient("decay", *x.decay, *x.ddecay, loss, most, 1e-6);
    if (x.beta) expect_gradient("beta", *x.beta, *x.dbeta, loss, most, 1e-6);
    if (x.first_state) expect_gradient("first state", *x.first_state, *x.dfirst_state, loss, most, 1e-6);
  }
}

}  // namespace
}  // namespace longstride::testing::scan_test
