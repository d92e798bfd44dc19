#include "framework/ops/embedding.h"

#include "framework/core/errors.h"
#include "tests/gradients/finite_differences.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::dot;
using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::tokens;
using testing::zeros;

constexpr std::int64_t vocabulary = 11;

// Parameters (or gradients) of an image's three tables: row, column and channel of positions of 4 x 5 x 3.
struct Tables {
  OwnedTensor start, token, row, column, channel;
  Tables(std::int64_t width, Dtype d, bool random)
      : start(make({width}, d, 1, random)),
        token(make({vocabulary, width}, d, 2, random)),
        row(make({4, width}, d, 3, random)),
        column(make({5, width}, d, 4, random)),
        channel(make({3, width}, d, 5, random)) {}
  static OwnedTensor make(const Shape& shape, Dtype d, std::uint32_t stream, bool random) {
    return random ? normals(shape, d, stream) : zeros(shape, d);
  }
  ops::Embedding embedding(std::int64_t first = 0) const {
    return {start, token, {{15, row}, {3, column}, {1, channel}}, first};
  }
};

TEST(Embedding, SumsTheTokenBeforeAndThePositionsOfTheSlot) {
  TestContext ctx;
  for (const Dtype d : {Dtype::f32, Dtype::f64})
    for (const std::int64_t width : {1, 17, 130}) {
      const Tables t(width, d, true);
      const OwnedTensor text = tokens({3, 60}, 1, vocabulary);
      OwnedTensor y({3, 60, width}, d);
      ops::embed(ctx, t.embedding(), text, y);
      for (std::int64_t b = 0; b < 3; ++b)
        for (std::int64_t p = 0; p < 60; ++p)
          for (std::int64_t j = 0; j < width; ++j) {
            const double before =
                p == 0 ? t.start.at(j) : t.token.at(static_cast<std::int64_t>(text.at(b * 60 + p - 1)) * width + j);
            const double expected = before + t.row.at(p / 15 * width + j) + t.column.at(p / 3 % 5 * width + j) +
                                    t.channel.at(p % 3 * width + j);
            EXPECT_NEAR(y.at((b * 60 + p) * width + j), expected, d == Dtype::f64 ? 1e-14 : 1e-6);
          }
    }
}

// Decoding: one slot at a time, given the byte drawn last, gives what the whole sequence gives at that slot.
TEST(Embedding, ASlotAtALaterPositionTakesItsOwnToken) {
  TestContext ctx;
  const std::int64_t width = 9;
  const Tables t(width, Dtype::f32, true);
  const OwnedTensor text = tokens({2, 60}, 1, vocabulary);
  OwnedTensor whole({2, 60, width}, Dtype::f32), slot({2, 1, width}, Dtype::f32);
  ops::embed(ctx, t.embedding(), text, whole);
  for (std::int64_t p = 0; p < 60; ++p) {
    OwnedTensor last({2, 1}, Dtype::u8);
    for (std::int64_t b = 0; b < 2; ++b) last.set(b, p == 0 ? 0 : text.at(b * 60 + p - 1));
    ops::embed(ctx, t.embedding(p), last, slot);
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t j = 0; j < width; ++j)
        EXPECT_EQ(slot.at(b * width + j), whole.at((b * 60 + p) * width + j)) << p;
  }
}

TEST(Embedding, GradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  const std::int64_t width = 3;
  const Tables t(width, Dtype::f64, true), gradients(width, Dtype::f64, false);
  const OwnedTensor text = tokens({2, 60}, 1, vocabulary), dy = normals({2, 60, width}, Dtype::f64, 9);
  const auto loss = [&] {
    OwnedTensor y({2, 60, width}, Dtype::f64);
    ops::embed(ctx, t.embedding(), text, y);
    return dot(y, dy);
  };
  ops::embed_backward(ctx, dy, text, gradients.embedding());
  testing::expect_gradient("start", t.start, gradients.start, loss);
  testing::expect_gradient("token", t.token, gradients.token, loss);
  testing::expect_gradient("row", t.row, gradients.row, loss);
  testing::expect_gradient("column", t.column, gradients.column, loss);
  testing::expect_gradient("channel", t.channel, gradients.channel, loss);

  const OwnedTensor once = gradients.token;
  ops::embed_backward(ctx, dy, text, gradients.embedding());
  for (std::int64_t i = 0; i < once->count(); ++i) EXPECT_NEAR(gradients.token.at(i), 2 * once.at(i), 1e-13);
}

TEST(Embedding, GradientsInFloatAreAsExactAsAPlainLoop) {
  TestContext ctx;
  const std::int64_t width = 70, seq = 600;
  const OwnedTensor text = tokens({2, seq}, 1, vocabulary), dy = normals({2, seq, width}, Dtype::f32, 9);
  const Tables found(width, Dtype::f32, false);
  ops::embed_backward(ctx, dy, text, found.embedding());
  OwnedTensor exact({vocabulary, width}, Dtype::f64), plain({vocabulary, width}, Dtype::f32);
  for (std::int64_t i = 0; i < 2 * seq; ++i)
    for (std::int64_t j = 0; j < width && i % seq > 0; ++j) {
      const std::int64_t at = static_cast<std::int64_t>(text.at(i - 1)) * width + j;
      exact.set(at, exact.at(at) + dy.at(i * width + j));
      plain.set(at, plain.at(at) + dy.at(i * width + j));
    }
  testing::expect_as_exact_as_plain("token", found.token, plain, exact);
}

// As ranks that divide a sequence take them: the inputs of positions from `cut` on are the tokens one before.
TEST(Embedding, RunsOfASequenceGiveTheGradientsOfTheWhole) {
  TestContext ctx;
  const std::int64_t width = 12, seq = 60;
  const OwnedTensor text = tokens({1, seq}, 1, vocabulary), dy = normals({1, seq, width}, Dtype::f64, 9);
  for (std::int64_t cut : {1, 7, 30, 59}) {
    const Tables whole(width, Dtype::f64, false), runs(width, Dtype::f64, false);
    ops::embed_backward(ctx, dy, text, whole.embedding());
    ops::embed_backward(ctx, dy->slice(1, 0, cut), text->slice(1, 0, cut), runs.embedding());
    ops::embed_backward(ctx, dy->slice(1, cut, seq), text->slice(1, cut - 1, seq - 1), runs.embedding(cut));
    for (const auto& [a, b] :
         {std::pair{&whole.start, &runs.start}, std::pair{&whole.token, &runs.token}, std::pair{&whole.row, &runs.row},
          std::pair{&whole.column, &runs.column}, std::pair{&whole.channel, &runs.channel}})
      for (std::int64_t i = 0; i < (*a)->count(); ++i) EXPECT_NEAR(b->at(i), a->at(i), 1e-12) << cut;
  }
}

TEST(Embedding, RefusesTablesOfAnotherWidth) {
  TestContext ctx;
  const Tables t(8, Dtype::f32, true), other(9, Dtype::f32, true);
  const OwnedTensor text = tokens({1, 60}, 1, vocabulary), y = zeros({1, 60, 8}, Dtype::f32);
  ops::Embedding mixed = t.embedding();
  mixed.positions[1].table = *other.column;
  EXPECT_THROW(ops::embed(ctx, mixed, text, y), InternalError);
}

}  // namespace
}  // namespace longstride
