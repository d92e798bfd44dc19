#include "kernels/attention/decode/decode.h"

#include <gtest/gtest.h>

#include "kernels/attention/decode/decode_geometry.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"

namespace longstride::kernels {
namespace {

// Appends the first `prompt` positions at once and the others one by one, attending from each of the latter.
template <class T>
void decode_all(const DecodePlan& plan, const AttentionShape& s, AttentionData<T>& x, std::int64_t prompt,
                const Tensor& sink) {
  std::vector<T> keys(static_cast<std::size_t>(s.batch * plan.rows * s.key_size), std::numeric_limits<T>::quiet_NaN());
  std::vector<T> values(static_cast<std::size_t>(s.batch * plan.rows * s.value_size),
                        std::numeric_limits<T>::quiet_NaN());
  const auto cache_view = [&](std::vector<T>& data, std::int64_t size) {
    return Tensor(data.data(), DtypeOf<T>::value, {s.batch, plan.rows, size});
  };
  const auto positions = [&](std::vector<T>& data, std::int64_t size, std::int64_t first, std::int64_t count) {
    return rows_view(data, s, size).slice(1, first, first + count);
  };
  const auto query = [&](std::vector<T>& data, std::int64_t size, std::int64_t position) {
    return query_rows_view(data, s, size).slice(1, position, position + 1);
  };
  const DecodeCache cache{&plan, cache_view(keys, s.key_size), cache_view(values, s.value_size)};
  for (std::int64_t i = 0; i < s.n;) {
    const std::int64_t count = i == 0 && prompt > 0 ? prompt : 1;
    cpu::append({cache, positions(x.k, s.key_size, i, count), positions(x.v, s.value_size, i, count), i}, {});
    i += count;
    DecodeArgs args{cache, query(x.q, s.key_size, i - 1), query(x.o, s.value_size, i - 1), i - 1, s.scale()};
    args.sink = sink;
    cpu::decode(args, {});
  }
}

TEST(AttentionDecode, EveryRowEqualsThatOfTheWholeAttention) {
  const Threads one(1);
  for (const NamedPattern& p : all_patterns()) {
    const std::int64_t layers =
        p.pattern.integration == Integration::interleaved ? static_cast<std::int64_t>(p.pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (std::int64_t prompt : {0, 19}) {
        const std::int64_t key_heads = prompt > 0 && p.heads % 2 == 0 ? p.heads / 2 : p.heads;
        const AttentionShape shape{2, 45, p.heads, 3, 18, 0, key_heads};
        const auto plan = make_plan(p.pattern, layer, p.heads, 45);
        AttentionData<double> whole(shape), x(shape);
        std::vector<double> logits(static_cast<std::size_t>(p.heads), 0.7);
        const Tensor sink = prompt > 0 ? Tensor(logits.data(), Dtype::f64, {p.heads}) : Tensor();
        run_forward(*plan, shape, whole, {}, {}, {}, sink);
        decode_all(*make_decode_plan(*plan, key_heads), shape, x, prompt, sink);
        const std::int64_t row = p.heads * 18, first = prompt > 0 ? prompt - 1 : 0;
        for (std::int64_t i = 0; i < 2 * 45 * row; ++i)
          if (i / row % 45 >= first) {
            ASSERT_NEAR(x.o[static_cast<std::size_t>(i)], whole.o[static_cast<std::size_t>(i)], 1e-12)
                << p.name << " layer " << layer << " prompt " << prompt << " element " << i;
          }
      }
  }
}

TEST(AttentionDecode, RefusesAPatternThatLooksAhead) {
  PatternConfig both = pattern_of(Integration::merged, {PartKind::local}, 0, {}, 5);
  both.direction = Direction::both;
  EXPECT_THROW(make_decode_plan(*make_plan(both, 0, 1, 8)), std::invalid_argument);
}

// Generation on a GPU uses KeyLine instead of KeyRows, which divides for every key.
TEST(AttentionDecode, KeysLieOnALineOfTheirRing) {
  std::int64_t seen = 0, others = 0;
  for (const NamedPattern& p : all_patterns()) {
    const std::int64_t layers =
        p.pattern.integration == Integration::interleaved ? static_cast<std::int64_t>(p.pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (std::int32_t n : {5, 45, 131}) {
        const auto plan = make_decode_plan(*make_plan(p.pattern, layer, p.heads, n));
        for (std::size_t h = 0; h < plan->heads.size(); ++h) {
          const cuda::HeadGeometry head = cuda::geometry_of(*plan, h);
          for (std::int32_t position = 0; position < n; ++position)
            for (int part = 0; part < head.part_count; ++part) {
              const cuda::KeyRows rows = cuda::key_rows_of(head, part, n, position);
              const cuda::KeyLine line = cuda::key_line_of(rows);
              others += line.step > 0 ? 0 : rows.count();
              for (std::int32_t i = 0; line.step > 0 && i < rows.count(); ++i, ++seen) {
                ASSERT_EQ(line.row(i), rows.row(i)) << p.name << " layer " << layer << " head " << h << " of " << n
                                                    << " position " << position << " part " << part << " key " << i;
              }
            }
        }
      }
  }
  EXPECT_GT(seen, 100000);
  EXPECT_LT(others, seen / 100);  // keys that are not on a line are rare
}

TEST(AttentionDecode, CacheKeepsOnlyRowsThatCanStillBeAttendedTo) {
  using enum Integration;
  using enum PartKind;
  const auto rows = [](const PatternConfig& p, std::int64_t layer) {
    return make_decode_plan(*make_plan(p, layer, 2, 1000))->rows;
  };
  EXPECT_EQ(rows(pattern_of(interleaved, {local, column}, 100), 0), 2 * 101);
  EXPECT_EQ(rows(pattern_of(interleaved, {local, column}, 100, {}, 100), 0), 2 * 100);
  EXPECT_EQ(rows(pattern_of(interleaved, {local, column}, 100), 1), 2 * 1000);
  EXPECT_EQ(rows(pattern_of(merged, {local, column}, 100), 0), 2 * 1000);
  EXPECT_EQ(rows(pattern_of(merged, {fixed_block, fixed_summary}, 100, {10}), 0), 2 * (100 + 100));
  EXPECT_EQ(rows(pattern_of(merged, {fixed_block, fixed_summary}, 100, {10, 20}), 0), 2 * 100 + 100 + 200);
  EXPECT_EQ(rows(pattern_of(multihead, {local, dense}, 100), 0), 101 + 1000);
}

// One ring for all heads of a key head that see the same keys, one for each that sees others.
TEST(AttentionDecode, HeadsThatShareKeysShareRings) {
  using enum Integration;
  using enum PartKind;
  const auto rows = [](const PatternConfig& p, std::int64_t key_heads) {
    return make_decode_plan(*make_plan(p, 0, 4, 1000), key_heads)->rows;
  };
  EXPECT_EQ(rows(pattern_of(merged, {local}, 100), 4), 4 * 101);
  EXPECT_EQ(rows(pattern_of(merged, {local}, 100), 2), 2 * 101);
  EXPECT_EQ(rows(pattern_of(merged, {local}, 100), 1), 101);
  EXPECT_EQ(rows(pattern_of(multihead, {local, dense}, 100), 2), 101 + 1000);
  EXPECT_EQ(rows(pattern_of(multihead, {local, dense}, 100), 1), 101 + 1000);
}

}  // namespace
}  // namespace longstride::kernels
