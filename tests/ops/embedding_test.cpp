#include "kernels/embedding/embedding.h"

#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::embedding_test {
namespace {

using kernels::EmbeddingArgs;
using kernels::EmbeddingBackwardArgs;

struct Case {
  std::int64_t batch, seq, width, vocabulary;
  std::vector<std::pair<std::int64_t, std::int64_t>> tables;  // divisor, size
};

constexpr double scales[] = {1, 2.5};

const Case small{3, 60, 17, 11, {{15, 4}, {3, 5}, {1, 3}}};
// Slots enough for a GPU's warps to have eight each, of which those of one sequence share a row of the first table.
const Case many{3, 13001, 20, 200, {{1, 96}, {96, 150}}};
const Case cases[] = {
    small,
    {1, 1, 64, 256, {{1, 1}}},
    {3, 60, 1, 11, {{15, 4}, {3, 5}, {1, 3}}},
    {3, 700, 130, 256, {{64, 11}, {1, 64}}},
    {2, 3072, 128, 256, {{96, 32}, {3, 32}, {1, 3}}},
    {5, 333, 33, 17, {{1, 500}}},  // more rows than positions
    {4, 2048, 256, 256, {{128, 16}, {1, 128}}},
    {2, 100, 96, 256, {}},
    {3, 999, 260, 256, {{37, 27}, {1, 37}}},  // no full chunk, piece or warp
    {1, 5000, 64, 2, {{1, 5000}}},            // tokens with many pieces
    {3, 700, 130, 260, {{64, 11}, {1, 64}}},  // ids beyond bytes
    {4, 2048, 96, 512, {{1, 64}}},
    {2, 700, 12, 1300, {{1, 64}}},  // more rows than a GPU sorts at a time
    {1, 400, 4, 65535, {}},
    many,
    {1, 34567, 34, 3, {{5, 7}, {1, 3}}},
};

// The embedding's tables, or gradients in their place; the first two are the start vector and the token table.
struct Tables {
  const Case& of;
  std::vector<Operand> all;

  void fill(EmbeddingArgs& args) const {
    args.start = all[0];
    args.token_table = all[1];
    args.tables = 0;
    for (const auto& [divisor, size] : of.tables) {
      const std::size_t next = static_cast<std::size_t>(args.tables) + 2;
      args.positions[args.tables++] = {divisor, all[next]};
    }
  }
  // The rows that slot t of a sequence sums: f(table, row).
  template <class F>
  void each_row(const Operand& tokens, std::int64_t sequence, std::int64_t t, std::int64_t first, F&& f,
                const Operand* starts = nullptr) const {
    const bool shifts = first == 0 && starts == nullptr;
    const std::int64_t position = first + t, at = sequence * of.seq + (shifts ? t - 1 : t);
    if (position == 0 && (starts == nullptr || starts->at(sequence) != 0))
      f(0, 0);
    else
      f(1, static_cast<std::int64_t>(tokens.at(at)));
    for (std::size_t i = 0; i < of.tables.size(); ++i)
      f(static_cast<int>(i) + 2, position / of.tables[i].first % of.tables[i].second);
  }
};

class EmbeddingTest : public OpTest {
 protected:
  Tables tables(const Case& c, std::uint32_t stream) {
    Tables t{c, {normals({c.width}, exact(), stream), normals({c.vocabulary, c.width}, exact(), stream + 1)}};
    for (const auto& [divisor, size] : c.tables)
      t.all.push_back(normals({size, c.width}, exact(), stream + static_cast<std::uint32_t>(t.all.size())));
    return t;
  }
  Operand tokens(const Shape& shape, std::int64_t below) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(shape.count()); ++i)
      values.push_back(kernels::philox(7, i, 1, kernels::domain_of(kernels::Purpose::test, 1)).word[0] %
                       static_cast<std::uint32_t>(below));
    return with_values(shape, below > 256 ? Dtype::u16 : Dtype::u8, std::move(values));
  }
  // over_rows calls f(table, row, slot) for every row that a slot reads: y is their sum, and dy is added to those of g.
  template <class F>
  void expect_sums(std::int64_t width, const Tables& t, const Tables& g, const Operand& y, const Operand& dy,
                   const F& over_rows) {
    expect_as_exact_as_plain("y", y, [&](auto zero) {
      std::vector<decltype(zero)> out(static_cast<std::size_t>(y->count()));
      over_rows([&](int table, std::int64_t row, std::int64_t i) {
        for (std::int64_t j = 0; j < width; ++j)
          out[static_cast<std::size_t>(i * width + j)] +=
              static_cast<decltype(zero)>(t.all[static_cast<std::size_t>(table)].at(row * width + j));
      });
      return out;
    });
    for (std::size_t table = 0; table < g.all.size(); ++table)
      expect_as_exact_as_plain("table " + std::to_string(table), g.all[table], [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> sums(g.all[table].values().begin(), g.all[table].values().end());
        over_rows([&](int which, std::int64_t row, std::int64_t i) {
          for (std::int64_t j = 0; j < width && static_cast<std::size_t>(which) == table; ++j)
            sums[static_cast<std::size_t>(row * width + j)] += static_cast<T>(dy.at(i * width + j));
        });
        return sums;
      });
  }
  EmbeddingArgs args(const Tables& t, const Tensor& text, const Tensor& y, std::int64_t first = 0,
                     double scale = 1) const {
    EmbeddingArgs out;
    out.scale = scale;
    t.fill(out);
    out.tokens = text;
    out.y = y;
    out.first = first;
    return out;
  }
};
LONGSTRIDE_OP_TESTS(EmbeddingTest);

TEST_P(EmbeddingTest, SumsTheTokenBeforeAndThePositionsOfTheSlot) {
  for (const Case& c : cases)
    for (const std::int64_t first : {0, 5}) {
      const double scale = scales[first / 5];
      const Tables t = tables(c, 1);
      const Operand text = tokens({c.batch, c.seq}, c.vocabulary);
      Operand y = result({c.batch, c.seq, c.width});
      run(args(t, text, y, first, scale), {&y});
      expect_as_exact_as_plain("y", y, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> out(static_cast<std::size_t>(y->count()));
        for (std::int64_t i = 0; i < c.batch * c.seq; ++i)
          t.each_row(text, i / c.seq, i % c.seq, first, [&](int table, std::int64_t row) {
            for (std::int64_t j = 0; j < c.width; ++j)
              out[static_cast<std::size_t>(i * c.width + j)] +=
                  (table < 2 ? static_cast<T>(scale) : 1) *
                  static_cast<T>(t.all[static_cast<std::size_t>(table)].at(row * c.width + j));
          });
        return out;
      });
    }
}

TEST_P(EmbeddingTest, GradientsAreAsExactAsAPlainLoopAndAccumulate) {
  for (const Case& c : cases)
    for (const auto& [first, scale] : {std::pair{0, 1.0}, {0, 2.5}, {5, 2.5}, {1000, 1.0}}) {
      Tables g = tables(c, 1);
      const Operand text = tokens({c.batch, c.seq}, c.vocabulary), dy = normals({c.batch, c.seq, c.width}, 20);
      ops::run(ctx, EmbeddingBackwardArgs{args(g, text, dy, first, scale)});
      for (std::size_t table = 0; table < g.all.size(); ++table)
        expect_as_exact_as_plain(
            "table " + std::to_string(table), g.all[table], [&, at = first, by = scale](auto zero) {
              using T = decltype(zero);
              std::vector<T> sums(g.all[table].values().begin(), g.all[table].values().end());
              for (std::int64_t i = 0; i < c.batch * c.seq; ++i)
                g.each_row(text, i / c.seq, i % c.seq, at, [&](int which, std::int64_t row) {
                  if (static_cast<std::size_t>(which) != table) return;
                  for (std::int64_t j = 0; j < c.width; ++j)
                    sums[static_cast<std::size_t>(row * c.width + j)] +=
                        (which < 2 ? static_cast<T>(by) : 1) * static_cast<T>(dy.at(i * c.width + j));
                });
              return sums;
            });
    }
}

// Rows of a stream: a row that continues one reads its own first token, and adds nothing to the start vector.
TEST_P(EmbeddingTest, RowsThatContinueAStreamReadTheirOwnTokens) {
  for (const Case& c : {small, Case{3, 700, 130, 260, {{1, 64}}}, many}) {
    const Tables t = tables(c, 1);
    Tables g = tables(c, 1);
    const Operand text = tokens({c.batch, c.seq}, c.vocabulary), starts = with_values({3}, Dtype::u8, {0, 1, 0});
    const Operand dy = normals({c.batch, c.seq, c.width}, 20);
    Operand y = result({c.batch, c.seq, c.width});
    EmbeddingArgs forward = args(t, text, y), backward = args(g, text, dy);
    forward.starts = backward.starts = starts;
    run(forward, {&y});
    ops::run(ctx, EmbeddingBackwardArgs{backward});
    // Calls f(table, row, slot) for every row that a slot reads.
    const auto over_rows = [&](auto&& f) {
      for (std::int64_t i = 0; i < c.batch * c.seq; ++i)
        t.each_row(
            text, i / c.seq, i % c.seq, 0, [&](int table, std::int64_t row) { f(table, row, i); }, &starts);
    };
    expect_sums(c.width, t, g, y, dy, over_rows);
  }
}

// Documents in a row: each begins with the start vector, but the first of a row that continues a stream, and positions
// count from there if they restart. Tables of more rows than are sorted at a time are among them.
TEST_P(EmbeddingTest, DocumentsBeginLikeRows) {
  for (const Case& c : {small, Case{3, 700, 130, 260, {{1, 64}}}, Case{3, 1900, 12, 7, {{1, 1300}}}, many})
    for (const auto& [restart, first, streams] :
         {std::tuple{true, 0, false}, {false, 0, false}, {true, 9, false}, {true, 0, true}}) {
      const std::int64_t batch = first > 0 ? 1 : c.batch;  // a part of a longer sequence is of one
      const Case of{batch, c.seq, c.width, c.vocabulary, c.tables};
      const Tables t = tables(of, 1);
      Tables g = tables(of, 1);
      std::vector<double> begins;
      for (std::int64_t i = 0; i < batch * c.seq; ++i) {
        const std::int64_t at = first + i % c.seq, length = 7 + 30 * (i / c.seq);
        begins.push_back(static_cast<double>(at < 3 ? (streams ? 0 : at) : 3 + (at - 3) / length * length));
      }
      const Operand starts = with_values({batch}, Dtype::u8, std::vector<double>(static_cast<std::size_t>(batch), 0));
      const Operand begin = with_values({batch, c.seq}, Dtype::i32, begins);
      const Operand text = tokens({batch, c.seq}, c.vocabulary), dy = normals({batch, c.seq, c.width}, 20);
      Operand y = result({batch, c.seq, c.width});
      EmbeddingArgs forward = args(t, text, y, first), backward = args(g, text, dy, first);
      forward.begin = backward.begin = begin;
      forward.restart = backward.restart = restart;
      if (streams) forward.starts = backward.starts = starts;
      run(forward, {&y});
      ops::run(ctx, EmbeddingBackwardArgs{backward});
      const auto over_rows = [&, from = first, counts = restart, continues = streams](auto&& f) {
        for (std::int64_t i = 0; i < batch * c.seq; ++i) {
          const std::int64_t at = from + i % c.seq, origin = static_cast<std::int64_t>(begin.at(i));
          if (at == origin && !(continues && at == 0))
            f(0, 0, i);
          else
            f(1, static_cast<std::int64_t>(text.at(from == 0 && !continues ? i - 1 : i)), i);
          for (std::size_t k = 0; k < c.tables.size(); ++k)
            f(static_cast<int>(k) + 2, (counts ? at - origin : at) / c.tables[k].first % c.tables[k].second, i);
        }
      };
      expect_sums(c.width, t, g, y, dy, over_rows);
    }
}

// Without a start vector, wherever rows, runs of them and documents begin.
TEST_P(EmbeddingTest, EveryPositionMayReadItsOwnToken) {
  for (const Case& c : {small, Case{3, 700, 130, 260, {{1, 700}}}, many})
    for (const auto& [first, documents] : {std::pair{0, false}, {5, false}, {0, true}}) {
      const Tables t = tables(c, 1);
      Tables g = tables(c, 1);
      std::vector<double> begins;
      for (std::int64_t i = 0; i < c.batch * c.seq; ++i) begins.push_back(static_cast<double>(i % c.seq / 9 * 9));
      const Operand begin = with_values({c.batch, c.seq}, Dtype::i32, begins);
      const Operand text = tokens({c.batch, c.seq}, c.vocabulary), dy = normals({c.batch, c.seq, c.width}, 20);
      Operand y = result({c.batch, c.seq, c.width});
      EmbeddingArgs forward = args(t, text, y, first), backward = args(g, text, dy, first);
      for (EmbeddingArgs* of : {&forward, &backward}) {
        of->own = true;
        of->start = {};
        if (documents) of->begin = begin, of->restart = true;
      }
      const auto start_before = g.all[0].raw();
      run(forward, {&y});
      ops::run(ctx, EmbeddingBackwardArgs{backward});
      EXPECT_EQ(g.all[0].raw(), start_before);
      const auto over_rows = [&, from = first, counts = documents](auto&& f) {
        for (std::int64_t i = 0; i < c.batch * c.seq; ++i) {
          const std::int64_t position = from + i % c.seq - (counts ? static_cast<std::int64_t>(begin.at(i)) : 0);
          f(1, static_cast<std::int64_t>(text.at(i)), i);
          for (std::size_t k = 0; k < c.tables.size(); ++k)
            f(static_cast<int>(k) + 2, position / c.tables[k].first % c.tables[k].second, i);
        }
      };
      expect_sums(c.width, t, g, y, dy, over_rows);
    }
}

// The table of some ids in a row: slots of other ids, and without a start vector the first ones, read 0 and give
// nothing.
TEST_P(EmbeddingTest, ABandOfTheVocabularyIsReadWhereItHasTheId) {
  for (const auto& [band, rows, starts] : {std::tuple{0, 5, true}, {3, 4, false}, {7, 4, false}, {90, 700, false}}) {
    const Case whole{3, 60, 17, band < 90 ? 11 : 1300, {{1, 3}}}, part{3, 60, 17, rows, {{1, 3}}};
    const Tables t = tables(part, 1);
    Tables g = tables(part, 1);
    const Operand text = tokens({3, 60}, whole.vocabulary), dy = normals({3, 60, 17}, 20);
    Operand y = result({3, 60, 17});
    EmbeddingArgs forward = args(t, text, y), backward = args(g, text, dy);
    for (EmbeddingArgs* of : {&forward, &backward}) {
      of->band = band;
      if (!starts) of->start = {};
    }
    const auto start_before = g.all[0].raw();
    run(forward, {&y});
    ops::run(ctx, EmbeddingBackwardArgs{backward});
    if (!starts) {
      EXPECT_EQ(g.all[0].raw(), start_before);
    }
    expect_sums(17, t, g, y, dy, [&, from = band, count = rows, first = starts](auto&& f) {
      for (std::int64_t i = 0; i < 180; ++i) {
        const std::int64_t row = i % 60 == 0 ? -1 : static_cast<std::int64_t>(text.at(i - 1)) - from;
        if (i % 60 == 0 && first) f(0, 0, i);
        if (row >= 0 && row < count) f(1, row, i);
        f(2, i % 60 % 3, i);
      }
    });
  }
}

// A single token, and tokens in runs: the slots of a token always have the same order and the same pieces.
TEST_P(EmbeddingTest, GradientsHaveTheSameBitsEachTime) {
  for (const std::int64_t below : {1, 3, 256, 500}) {
    const Case c{4, 2048, 96, 512, {{64, 32}, {1, 64}}};
    Tables g = tables(c, 1);
    const Operand text = tokens({c.batch, c.seq}, below), dy = normals({c.batch, c.seq, c.width}, 20);
    run(EmbeddingBackwardArgs{args(g, text, dy)}, {&g.all[0], &g.all[1], &g.all[2], &g.all[3]});
  }
}

// Decoding one slot at a time, given the byte drawn last, equals the whole sequence at that slot.
TEST_P(EmbeddingTest, ASlotAtALaterPositionTakesItsOwnToken) {
  const Tables t = tables(small, 1);
  const Operand text = tokens({3, 60}, small.vocabulary), whole = result({3, 60, 17});
  ops::run(ctx, args(t, text, whole));
  const std::vector<double> expected = whole.found();
  for (const std::int64_t p : {0, 1, 2, 30, 59}) {
    std::vector<double> last;
    for (std::int64_t b = 0; b < 3; ++b) last.push_back(p == 0 ? 0 : text.at(b * 60 + p - 1));
    const Operand previous = with_values({3, 1}, Dtype::u8, last), slot = result({3, 1, 17});
    const Operand position = filled({1}, Dtype::i64, static_cast<double>(p));
    EmbeddingArgs one = args(t, previous, slot, p);
    ops::run(ctx, one);
    const auto raw = slot.raw();
    const std::vector<double> found = slot.found();
    for (std::int64_t i = 0; i < 51; ++i)
      EXPECT_EQ(found[static_cast<std::size_t>(i)],
                expected[static_cast<std::size_t>((i / 17 * 60 + p) * 17 + i % 17)]);
    if (device() == Device::cpu) continue;
    one.first = 0;
    one.first_at = position->as<std::int64_t>();
    ops::run(ctx, one);
    EXPECT_EQ(slot.raw(), raw) << "a position in the GPU's memory";
  }
}

// As in ranks that divide a sequence: the input at a position from `cut` on is the preceding token.
TEST_P(EmbeddingTest, RunsOfASequenceGiveTheGradientsOfTheWhole) {
  if (compute() != Dtype::f64) return;
  const Case c{1, 60, 12, 11, small.tables};
  const Operand text = tokens({1, 60}, c.vocabulary), dy = normals({1, 60, 12}, 9);
  for (const std::int64_t cut : {1, 7, 30, 59}) {
    const Tables whole = tables(c, 1), runs = tables(c, 1);
    ops::run(ctx, EmbeddingBackwardArgs{args(whole, text, dy)});
    ops::run(ctx, EmbeddingBackwardArgs{args(runs, text->slice(1, 0, cut), dy->slice(1, 0, cut))});
    ops::run(ctx, EmbeddingBackwardArgs{args(runs, text->slice(1, cut - 1, 59), dy->slice(1, cut, 60), cut)});
    for (std::size_t i = 0; i < whole.all.size(); ++i) {
      const std::vector<double> found = runs.all[i].found(), expected = whole.all[i].found();
      for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 1e-12) << cut;
    }
  }
}

TEST_P(EmbeddingTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Case c{2, 60, 3, 11, small.tables};
  const Tables t = tables(c, 1), g = tables(c, 1);
  for (const Operand& o : g.all) std::fill_n(o->as<double>(), o->count(), 0.0);
  const Operand text = tokens({2, 60}, c.vocabulary), dy = normals({2, 60, 3}, 9), y = result({2, 60, 3});
  ops::run(ctx, EmbeddingBackwardArgs{args(g, text, dy)});
  for (std::size_t i = 0; i < t.all.size(); ++i)
    expect_gradient("table " + std::to_string(i), t.all[i], g.all[i], [&] {
      ops::run(ctx, args(t, text, y));
      double total = 0;
      for (std::int64_t k = 0; k < y->count(); ++k) total += y->as<double>()[k] * dy.at(k);
      return total;
    });
}

TEST_P(EmbeddingTest, RefusesTablesOfAnotherWidth) {
  const Case wide{1, 60, 18, 11, small.tables};
  const Tables t = tables(small, 1), other = tables(wide, 1);
  const Operand text = tokens({1, 60}, small.vocabulary), y = result({1, 60, 17});
  EmbeddingArgs mixed = args(t, text, y);
  mixed.positions[1].table = other.all[3];
  EXPECT_THROW(ops::run(ctx, mixed), InternalError);
  mixed = args(t, text, y);
  mixed.positions[2].divisor = 0;
  EXPECT_THROW(ops::run(ctx, mixed), InternalError);
}

}  // namespace
}  // namespace longstride::testing::embedding_test
