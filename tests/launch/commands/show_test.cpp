// `longstride show pattern` draws what kernels::allowed says, or what kernels/distance_attention computes; `longstride
// attention` draws the probabilities of a run that remembers.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "datasets/dataset.h"
#include "datasets/formats/png.h"
#include "framework/train/attention_maps.h"
#include "kernels/distance_attention/distance_attention.h"
#include "launch/recipe/recipe.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

constexpr std::int64_t positions = 40;

// The rows of the text, without their numbers.
std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line)) rows.push_back(line.substr(5));
  return rows;
}

TEST(ShowPattern, TextIsTheMask) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const std::string cycle = "model.attention={integration: interleaved, parts: [local, column], stride: 6}";
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{}, {"model.attention.distinct_heads=true"}, {cycle}})
    for (std::int64_t layer = 0; layer < 2; ++layer)
      for (std::int64_t head = 0; head < 2; ++head) {
        std::vector<std::string> arguments = {"show",
                                              "pattern",
                                              "r.yaml",
                                              "--positions",
                                              std::to_string(positions),
                                              "--layer",
                                              std::to_string(layer),
                                              "--head",
                                              std::to_string(head)};
        for (const std::string& o : overrides) arguments.insert(arguments.end(), {"--set", o});
        const CommandResult result = run_command(arguments, dir.path());
        ASSERT_EQ(result.exit_code, 0) << result.err;
        const kernels::PatternConfig pattern = decoder(read_recipe(dir / "r.yaml", overrides)).attention;
        const std::vector<std::string> rows = rows_of(result.out);
        ASSERT_EQ(rows.size(), static_cast<std::size_t>(positions));
        for (std::int64_t i = 0; i < positions; ++i) {
          std::string expected;
          for (std::int64_t j = 0; j <= i; ++j) {
            const bool seen = kernels::allowed(pattern, layer, 2, head, positions, i, j);
            expected += !seen ? '.' : i == j ? '@' : '#';
          }
          EXPECT_EQ(rows[static_cast<std::size_t>(i)], expected) << layer << " " << head << " " << i;
        }
      }
}

// Rows that see later ones are drawn whole, and global rows with all that they see.
TEST(ShowPattern, DrawsEncodersOnBothSides) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", R"(name: small
data: {kind: bytes, path: x.h5, context: 12}
objective: {kind: masked}
model: {kind: encoder, layers: 1, width: 16, heads: 2, attention: {parts: [local], window: 3}, global: {first: 2}}
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)");
  const CommandResult result = run_command({"show", "pattern", "r.yaml"}, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find("the future"), std::string::npos);
  const std::vector<std::string> rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[0], "@###########");
  EXPECT_EQ(rows[1], "#@##########");
  EXPECT_EQ(rows[2], "##@#........");
  EXPECT_EQ(rows[7], "##....#@#...");
  EXPECT_EQ(rows[11], "##........#@");
  const CommandResult plan = run_command({"plan", "r.yaml"}, dir.path());
  EXPECT_NE(plan.out.find("50% of the pairs"), std::string::npos) << plan.out;
}

TEST(ShowPattern, DrawsAddedRowsInFrontOfPositions) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", R"(name: small
data: {kind: bytes, path: x.h5, context: 6}
objective: {kind: masked}
model: {kind: encoder, layers: 1, width: 16, heads: 2, attention: {parts: [local], window: 3}, global: {added: 2}}
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)");
  const CommandResult result = run_command({"show", "pattern", "r.yaml"}, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0], "##|@#....");
  EXPECT_EQ(rows[3], "##|..#@#.");
  const CommandResult plan = run_command({"plan", "r.yaml"}, dir.path());
  EXPECT_NE(plan.out.find("68.8% of the pairs"), std::string::npos) << plan.out;  // 44 of 64
}

TEST(ShowPattern, PicturesHaveASquareForEveryPairAndHighlightAQuery) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const kernels::PatternConfig pattern = decoder(read_recipe(dir / "r.yaml")).attention;
  const std::int64_t scale = 3, query = 21;
  const CommandResult result =
      run_command({"show", "pattern", "r.yaml", "--positions", std::to_string(positions), "--scale",
                   std::to_string(scale), "--query", std::to_string(query), "--output", "x.png"},
                  dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string bytes = text_of(dir / "x.png");
  const Picture picture = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "x.png");
  ASSERT_EQ(picture.rows, positions * scale);
  ASSERT_EQ(picture.columns, positions * scale);
  ASSERT_EQ(picture.channels, 3);
  const auto red = [&](std::int64_t i, std::int64_t j, std::int64_t corner) {
    const std::int64_t row = i * scale + corner, column = j * scale + corner;
    return picture.pixels[static_cast<std::size_t>((row * picture.columns + column) * 3)];
  };
  // One shade each: the future, the past that is not attended to, and attended to, by the query or by others.
  const int future = red(0, 1, 0), itself = red(query, query, 0), seen = red(query, query - 1, 0), faint = red(1, 0, 0);
  const int unseen = red(query, 0, 0);
  EXPECT_EQ((std::set{future, itself, seen, faint, unseen}.size()), 5u);
  for (std::int64_t i = 0; i < positions; ++i)
    for (std::int64_t j = 0; j < positions; ++j) {
      const bool attends = kernels::allowed(pattern, 0, 2, 0, positions, i, j);
      const int expected = j > i ? future : !attends ? unseen : i != query ? faint : i == j ? itself : seen;
      EXPECT_EQ(red(i, j, 0), expected) << i << " " << j;
      EXPECT_EQ(red(i, j, scale - 1), expected) << i << " " << j;
    }
}

// Attention over [compressed memory | memory | segment], and the settings by which its kernel is called.
struct Remembering {
  const char* name;
  std::string model;
  std::int64_t compressed, memory, segment;
  std::int64_t window = 0;
  bool self = true;
  std::int32_t dilation = 1;  // dilation of the first head
  double longest = 0, ramp = 0;
};

const Remembering remembering[] = {
    {"transformer_xl", "distance: {table: sinusoid}, memory: {length: 10}", 0, 10, 12},
    {"compressive", "distance: {table: sinusoid}, memory: {length: 12, compressed: 8, rate: 3}", 8, 12, 12},
    {"windows", "distance: {table: sinusoid, window: 6, dilation: 3, dilated_heads: 1}, memory: {length: 12}", 0, 12,
     12, 6, true, 3},
    {"longformer", "distance: {table: none, window: 5, dilation: 2, dilated_heads: 1}", 0, 0, 12, 5, true, 2},
    {"spans",
     "distance: {table: none, self: false, span: {longest: 16, ramp: 4, initial: 0.25, loss: 0.1}}, "
     "memory: {length: 14, compressed: 0}",
     0, 14, 12, 0, false, 1, 16, 4},
};

std::string recipe_of(const Remembering& c) {
  return std::string("name: remembers\ndata: {kind: bytes, path: x.h5, context: 12") +
         (c.memory > 0 ? ", order: streams" : "") +
         "}\nmodel: {kind: decoder, layers: 2, width: 16, heads: 2, positions: none, " + c.model +
         "}\ntrain: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}\n";
}

// The factors of a head's probabilities in the kernel, from its output for scores of 0 and values that tell keys apart:
// every row's probabilities are its weights over their sum, and the largest weight of a row is 1, unless the span is so
// short that none is.
std::vector<std::vector<double>> kernel_weights(const Remembering& c, std::int64_t head, double span) {
  const std::int64_t n_q = c.segment, n_k = c.compressed + c.memory + c.segment, heads = 2, size = 4;
  std::vector<float> zeros(static_cast<std::size_t>(n_k * heads * size)),
      o(static_cast<std::size_t>(n_q * heads * n_k)), lse(static_cast<std::size_t>(heads * n_q)),
      v(static_cast<std::size_t>(n_k * n_k)), spans(2, c.longest > 0 ? static_cast<float>(span / c.longest) : 0.0F);
  for (std::int64_t j = 0; j < n_k; ++j) v[static_cast<std::size_t>(j * n_k + j)] = 1;
  kernels::DistanceAttentionArgs args;
  args.scores.q = Tensor(zeros.data(), Dtype::f32, {1, n_q, heads, size});
  args.scores.k = Tensor(zeros.data(), Dtype::f32, {1, n_k, heads, size});
  args.scores.window = c.window;
  args.scores.self = c.self;
  args.scores.dilation = {c.dilation, 1};
  args.v = Tensor(v.data(), Dtype::f32, {1, n_k, heads, n_k}, {0, n_k, 0, 1});
  args.o = Tensor(o.data(), Dtype::f32, {1, n_q, heads, n_k});
  args.lse = Tensor(lse.data(), Dtype::f32, {1, heads, n_q});
  if (c.longest > 0) {
    args.scores.span = Tensor(spans.data(), Dtype::f32, {heads});
    args.scores.longest_span = c.longest;
    args.scores.ramp = c.ramp;
  }
  args.check(Device::cpu);
  std::vector<std::byte> scratch(kernels::cpu::distance_attention_scratch_bytes(args));
  args.scratch = Tensor(scratch.data(), Dtype::u8, {std::ssize(scratch)});
  kernels::cpu::distance_attention(args, {});
  std::vector<std::vector<double>> out;
  for (std::int64_t i = 0; i < n_q; ++i) {
    const float* row = o.data() + (i * heads + head) * n_k;
    out.emplace_back(row, row + n_k);
    const double most = *std::max_element(out.back().begin(), out.back().end());
    for (double& w : out.back()) w = most > 0 ? w / most : 0;
  }
  return out;
}

nlohmann::json shown_as_json(const TemporaryDirectory& dir, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"show", "pattern"});
  arguments.emplace_back("--json");
  const CommandResult result = run_command(arguments, dir.path());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

void expect_keys(const nlohmann::json& shown, const std::vector<std::vector<double>>& weights) {
  ASSERT_EQ(shown.at("keys").size(), weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::vector<bool> seen(weights[i].size());
    for (const auto& interval : shown.at("keys")[i])
      std::fill(seen.begin() + interval[0].get<std::ptrdiff_t>(), seen.begin() + interval[1].get<std::ptrdiff_t>(),
                true);
    for (std::size_t j = 0; j < seen.size(); ++j) EXPECT_EQ(seen[j], weights[i][j] > 0) << i << " " << j;
  }
}

TEST(ShowPattern, KeysOfWhatIsRememberedAreThoseThatTheKernelReads) {
  for (const Remembering& c : remembering) {
    SCOPED_TRACE(c.name);
    const TemporaryDirectory dir;
    write_text(dir / "r.yaml", recipe_of(c));
    for (std::int64_t head = 0; head < 2; ++head) {
      const nlohmann::json shown = shown_as_json(dir, {"r.yaml", "--head", std::to_string(head)});
      expect_keys(shown, kernel_weights(c, head, c.longest));
      EXPECT_EQ(shown.contains("key_rows"), c.memory > 0);
      if (c.memory > 0) {
        EXPECT_EQ(shown.at("key_rows").at("compressed"), c.compressed);
      }
    }
    if (c.longest == 0) continue;
    const nlohmann::json initial = shown_as_json(dir, {"r.yaml", "--spans", "initial"});
    expect_keys(initial, kernel_weights(c, 0, 4));
    EXPECT_EQ(initial.at("span"), (nlohmann::json{{"of", "initial"}, {"positions", 4.0}, {"ramp", 4.0}}));
  }
}

char expected_symbol(double weight, bool own) { return weight == 0 ? '.' : weight < 1 ? '+' : own ? '@' : '#'; }

TEST(ShowPattern, TextHasABorderBetweenWhatIsRememberedAndTheSegment) {
  for (const Remembering& c : remembering) {
    SCOPED_TRACE(c.name);
    const TemporaryDirectory dir;
    write_text(dir / "r.yaml", recipe_of(c));
    const auto weights = kernel_weights(c, 0, c.longest);
    const CommandResult result = run_command({"show", "pattern", "r.yaml"}, dir.path());
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<std::string> rows = rows_of(result.out);
    ASSERT_EQ(std::ssize(rows), c.segment);
    const std::int64_t before = c.compressed + c.memory;
    for (std::int64_t i = 0; i < c.segment; ++i) {
      std::string expected;
      for (std::int64_t j = 0; j <= before + i; ++j) {
        if (j > 0 && (j == c.compressed || j == before)) expected += '|';
        expected += expected_symbol(weights[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)], j == before + i);
      }
      EXPECT_EQ(rows[static_cast<std::size_t>(i)], expected) << i;
    }
  }
}

// As many rows of every part as queries: the last ones of a memory.
TEST(ShowPattern, PositionsLimitTheRowsOfEveryPart) {
  const Remembering& c = remembering[1];
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", recipe_of(c));
  const CommandResult result =
      run_command({"show", "pattern", "r.yaml", "--positions", "3", "--set", "model.distance.window=7"}, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(rows_of(result.out), (std::vector<std::string>{"...|###|@", "...|###|#@", "...|###|##@"}));
  EXPECT_NE(result.out.find("queries 0 to 2 against compressed memory (3 of 8) | memory (3 of 12) | segment (3 of 12)"),
            std::string::npos)
      << result.out;
  const CommandResult refused = run_command({"show", "pattern", "r.yaml", "--positions", "33"}, dir.path());
  EXPECT_EQ(refused.err, "longstride: --positions is 33, but at most 32 can be shown as text; give --output x.png\n");
}

// Cells of 12 x 12 pairs: 1,000 rows of memory, 100 of the segment.
TEST(ShowPattern, ACellOfManyPairsSaysWhetherAllAreSeen) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", recipe_of(remembering[0]));
  const CommandResult result = run_command({"show", "pattern", "r.yaml", "--set", "data.context=100", "--set",
                                            "model.memory.length=1000", "--set", "model.distance.window=500"},
                                           dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(", 12 x 12 pairs per cell"), std::string::npos) << result.out;
  const std::vector<std::string> rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 9U);
  for (int row = 0; row < 9; ++row) {
    std::string expected;
    for (int column = 0; column < 93; ++column) {
      const int begin = column < 84 ? 12 * column : 1000 + 12 * (column - 84),
                end = std::min(begin + 12, column < 84 ? 1000 : 1100);
      int pairs = 0, seen = 0;
      for (int i = 12 * row; i < std::min(12 * row + 12, 100); ++i)
        for (int j = begin; j < std::min(end, 1001 + i); ++j) ++pairs, seen += 1000 + i - j < 500;
      if (column == 84) expected += '|';
      if (pairs > 0) expected += seen == 0 ? '.' : seen == pairs ? '#' : '+';
    }
    EXPECT_EQ(rows[static_cast<std::size_t>(row)], expected) << row;
  }
}

TEST(ShowPattern, PicturesHaveALineBetweenThePartsAndFadeOverTheRamp) {
  const Remembering& c = remembering[4];
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", recipe_of(c));
  const CommandResult result =
      run_command({"show", "pattern", "r.yaml", "--spans", "initial", "--scale", "4", "--output", "x.png"}, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string bytes = text_of(dir / "x.png");
  const Picture picture = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "x.png");
  constexpr std::int64_t line = 2, scale = 4;
  ASSERT_EQ(picture.rows, c.segment * scale);
  ASSERT_EQ(picture.columns, (c.memory + c.segment) * scale + line);
  const auto blue = [&](std::int64_t row, std::int64_t x) {
    return int{picture.pixels[static_cast<std::size_t>((row * picture.columns + x) * 3 + 2)]};
  };
  const auto weights = kernel_weights(c, 0, 4);
  for (std::int64_t i = 0; i < c.segment; ++i) {
    for (std::int64_t x = 0; x < line; ++x) EXPECT_EQ(blue(i * scale, c.memory * scale + x), 32);
    for (std::int64_t j = 0; j <= c.memory + i; ++j) {
      const double weight = weights[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      const std::int64_t x = j * scale + (j >= c.memory ? line : 0);
      EXPECT_NEAR(blue(i * scale, x), 240 - 30 * weight, 0.51) << i << " " << j;  // from light grey to blue
      EXPECT_EQ(blue(i * scale + scale - 1, x + scale - 1), blue(i * scale, x));
    }
  }
}

TEST(ShowPattern, ARunIsShownWithItsLearnedSpans) {
  const Remembering& c = remembering[4];
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, recipe_of(c)));
  const CommandResult trained =
      run_command({"train", "r.yaml", "--run", "run", "--set", "train.lr=0.1", "--set", "train.steps=4"}, dir.path());
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto learned = nlohmann::json::parse(run_command({"show", "spans", "run", "--json"}, dir.path()).out);
  const double span = learned.at("layers")[1][0].get<double>();
  EXPECT_NE(span, 4);
  const nlohmann::json shown = shown_as_json(dir, {"run", "--layer", "1"});
  EXPECT_EQ(shown.at("span").at("of"), "learned");
  EXPECT_DOUBLE_EQ(shown.at("span").at("positions").get<double>(), span);
  expect_keys(shown, kernel_weights(c, 0, span));
  expect_keys(shown_as_json(dir, {"run", "--spans", "longest"}), kernel_weights(c, 0, c.longest));
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    return run_command(arguments, dir.path()).err;
  };
  EXPECT_EQ(refusal({"show", "pattern", "run", "--set", "model.layers=3"}),
            "longstride: --set changes a recipe, but run is a run; give its recipe, run/recipe.yaml\n");
  EXPECT_EQ(
      refusal({"show", "pattern", "r.yaml", "--spans", "learned"}),
      "longstride: --spans is learned, but r.yaml is a recipe; give the directory of a run, or --spans longest\n");
  write_text(dir / "none.yaml", recipe_of(remembering[0]));
  EXPECT_EQ(refusal({"show", "pattern", "none.yaml", "--spans", "longest"}),
            "longstride: --spans is longest, but the heads of none.yaml learn no spans in layer 0 "
            "(model.distance.span); leave it out\n");
}

class AttentionOfARun : public TextRun {
 protected:
  AttentionOfARun()
      : TextRun(recipe_of(remembering[1]),
                {{"train", "r.yaml", "--run", "compressive"}, {"train", "plain.yaml", "--run", "plain"}},
                {{"plain.yaml", recipe_of(remembering[3])}}) {}
  nlohmann::json drawn(const std::string& run, Arguments arguments) const {
    arguments.insert(arguments.begin(), {"attention", run, "--output", "drawn", "--force"});
    run_well(arguments);
    return nlohmann::json::parse(text("drawn/attention.json"));
  }
};
double sum_of(const std::vector<double>& p, std::int64_t begin, std::int64_t end) {
  return std::accumulate(p.begin() + begin, p.begin() + end, 0.0);
}

TEST_F(AttentionOfARun, MemoryHasTheProbabilitiesOfTheWindowsBefore) {
  const Remembering& c = remembering[1];
  const nlohmann::json shown = drawn("compressive", {"--input", "5", "--query", "5", "--query", "11"});
  const LoadedRun run = load_run(dir / "compressive", "automatic", {});
  // Seven windows can matter, but the text has five before this one.
  EXPECT_EQ(windows_that_matter(*run.model), (c.memory + 3 * c.compressed) * 2 / c.segment + 1);
  EXPECT_EQ(shown.at("windows_before"), 5);
  EXPECT_EQ(shown.at("key_rows"), (nlohmann::json{{"compressed", 8}, {"memory", 12}, {"segment", 12}}));
  const std::string path = dir / "x.h5";
  const auto set = open_run_data(run, path, "test")->split("test", false);
  std::vector<std::uint8_t> windows(static_cast<std::size_t>(6 * c.segment));
  set->read(0, 0, std::ssize(windows), windows.data());
  std::size_t n = 0;
  show_attention(*run.model, *run.recipe.objective, {windows}, {5, 11},
                 [&](std::int64_t layer, const MixesPositions::Probabilities& all) {
                   for (std::int64_t head = 0; head < 2; ++head)
                     for (std::size_t q = 0; q < 2; ++q, ++n) {
                       const nlohmann::json& picture = shown.at("pictures")[n];
                       const std::vector<double>& p = all[q][static_cast<std::size_t>(head)];
                       EXPECT_EQ(picture.at("layer"), layer);
                       EXPECT_EQ(picture.at("query"), q == 0 ? 5 : 11);
                       EXPECT_DOUBLE_EQ(picture.at("weight_of_compressed_memory").get<double>(),
                                        sum_of(p, 0, c.compressed));
                       EXPECT_DOUBLE_EQ(picture.at("weight_of_memory").get<double>(),
                                        sum_of(p, c.compressed, c.compressed + c.memory));
                       EXPECT_GT(sum_of(p, 0, c.compressed), 0.05);
                       EXPECT_NEAR(sum_of(p, 0, std::ssize(p)), 1, 1e-5);
                       EXPECT_FALSE(picture.contains("weight_of_start"));
                     }
                 });
  EXPECT_EQ(n, shown.at("pictures").size());
  // Compressed memory, memory with the byte before the segment, segment; lines of 2 positions, 2 dividers of 2 pixels.
  const std::string bytes = text_of(dir / "drawn/layer-001-head-01-query-000011.png");
  const Picture picture = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "x.png");
  EXPECT_EQ(picture.rows, (4 + 7 + 6) * 20 + 2 * 2);
}

// Text farther back changes nothing, so a run that has read less has the same figures, to the bit.
TEST_F(AttentionOfARun, AsManyWindowsAreReadAsMatter) {
  const nlohmann::json usual = drawn("compressive", {"--input", "15"}),
                       all = drawn("compressive", {"--input", "15", "--before", "15"});
  EXPECT_EQ(usual.at("windows_before"), 7);
  EXPECT_EQ(all.at("windows_before"), 15);
  EXPECT_EQ(usual.at("pictures"), all.at("pictures"));
  const nlohmann::json none = drawn("compressive", {"--input", "15", "--before", "0"});
  for (const nlohmann::json& picture : none.at("pictures")) {
    EXPECT_EQ(picture.at("weight_of_memory"), 0);
    EXPECT_EQ(picture.at("weight_of_compressed_memory"), 0);
    EXPECT_GT(picture.at("weight_of_start"), 0);
  }
}

TEST_F(AttentionOfARun, WithoutAMemoryThereIsNothingBefore) {
  const nlohmann::json shown = drawn("plain", {"--layer", "1"});
  EXPECT_FALSE(shown.contains("windows_before"));
  EXPECT_EQ(shown.at("sheets")[0].at("part"), "a window of 5 keys, every 2 positions");
  const CommandResult refused = run_command({"attention", "plain", "--before", "1"}, dir.path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            "longstride: --before is 1, but this model remembers nothing of the text before its context; leave it "
            "out\n");
}

TEST_F(AttentionOfARun, AMemoryFarLongerThanTheContextIsDrawnInLongerLines) {
  write_text(dir / "r.yaml", recipe_of(remembering[1]));
  const CommandResult trained = run_command(
      {"train", "r.yaml", "--run", "far", "--set", "model.memory.length=120000", "--set", "train.steps=1"}, dir.path());
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  drawn("far", {"--layer", "0", "--before", "1"});
  const std::string bytes = text_of(dir / "drawn/layer-000-head-01-query-000003.png");
  const Picture picture = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "x.png");
  EXPECT_LE(picture.rows, 258 * 20);
}

TEST_F(AttentionOfARun, PicturesThatMakeTooLargeASheetAreRefusedBeforeAnyIsWritten) {
  std::vector<std::string> arguments = {"attention", "plain", "--output", "many", "--query"};
  arguments.insert(arguments.end(), 40000, "5");
  const CommandResult refused = run_command(arguments, dir.path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err.find("longstride: 2 heads and 40000 queries make a contact sheet of "), 0u) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "many"));
}

}  // namespace
}  // namespace longstride::testing
