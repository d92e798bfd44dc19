// Settings of parts in blocks, dilated windows and global rows: what arrives where, and what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "framework/models/encoder/config.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::recipe_blocks_test {
namespace {

std::string encoder_with(const std::string& attention, const std::string& model = "", const std::string& data = "") {
  return fmt::format(R"(name: small
data: {{kind: bytes, path: x.h5, context: 640{}}}
objective: {{kind: masked}}
model: {{kind: encoder, layers: 2, width: 16, heads: 4{}, attention: {{{}}}}}
train: {{steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}}
)",
                     data, model, attention);
}

constexpr const char* blocks = "integration: merged, parts: [block_window, random_blocks], block: 64, random: 3";
constexpr const char* both_ends = ", global: {first: 1, last: 1}";

TEST(BlocksInRecipes, ArriveWhereTheyBelong) {
  const Recipe recipe =
      parse_recipe(encoder_with(std::string(blocks) + ", draw: published, seed: 5", both_ends), "r.yaml");
  const auto& m = dynamic_cast<const EncoderConfig&>(*recipe.model);
  EXPECT_EQ(m.attention.block, 64);
  EXPECT_EQ(m.attention.random, 3);
  EXPECT_EQ(m.attention.draw, kernels::BlockDraw::published);
  EXPECT_EQ(m.attention.seed, 5);
  EXPECT_EQ(m.global.first, 1);
  EXPECT_EQ(m.global.last, 1);
  EXPECT_FALSE(m.global.own);
  EXPECT_EQ(parse_recipe(recipe.resolved, "r.yaml").resolved, recipe.resolved);
}

TEST(BlocksInRecipes, AddedRowsAndLabels) {
  const Recipe recipe = parse_recipe(
      encoder_with("parts: [local], window: 9, labels: 12",
                   ", global: {added: 40, of: groups, sees: own_group, projections: own}", ", documents: rows"),
      "r.yaml");
  const auto& m = dynamic_cast<const EncoderConfig&>(*recipe.model);
  EXPECT_EQ(m.attention_heads.labels, 12);
  EXPECT_EQ(m.global.added, 40);
  EXPECT_TRUE(m.global.of_groups && m.global.own_group && m.global.own);
  EXPECT_EQ(parse_recipe(recipe.resolved, "r.yaml").resolved, recipe.resolved);
  // Documents of one row do not see one another, but its added rows see all.
  EXPECT_NO_THROW(static_cast<void>(m.with_documents({true, false, true})));
  EXPECT_THROW(static_cast<void>(m.with_documents({true, true, false})), UserError);
}

TEST(BlocksInRecipes, ShiftsAreAMap) {
  const Recipe recipe = parse_recipe(encoder_with("parts: [shifted_block], blocks: 4, shifts: {0: 3, 2: 1}"), "r.yaml");
  EXPECT_EQ(dynamic_cast<const EncoderConfig&>(*recipe.model).attention.shifts,
            (std::vector<std::int64_t>{3, 0, 1, 0}));
  EXPECT_EQ(parse_recipe(recipe.resolved, "r.yaml").resolved, recipe.resolved);
}

TEST(BlocksInRecipes, DilationsAreOneOrOnePerHead) {
  for (const auto& [text, expected] :
       {std::pair<std::string, std::vector<std::int64_t>>{"2", {2}}, {"[1, 1, 2, 3]", {1, 1, 2, 3}}})
    EXPECT_EQ(dynamic_cast<const EncoderConfig&>(
                  *parse_recipe(encoder_with("parts: [dilated], window: 5, dilation: " + text), "r.yaml").model)
                  .attention.dilation,
              expected);
}

struct Edit {
  std::string attention, model, error, data = "";
};

void expect_named(const std::vector<Edit>& edits) {
  for (const Edit& e : edits) {
    const std::string error =
        user_error_of([&] { parse_recipe(encoder_with(e.attention, e.model, e.data), "r.yaml"); });
    EXPECT_NE(error.find(e.error), std::string::npos) << e.attention << e.model << ":\n" << error;
  }
}

TEST(BlocksInRecipes, MistakesOfAddedRowsAndLabelsAreNamed) {
  const std::string window = "parts: [local], window: 9";
  expect_named({
      {window, ", global: {first: 1, added: 3}",
       "model.global.added is 3, but model.global also has rows at the ends of a row; remove one of them"},
      {window, ", global: {added: 641}", "model.global.added is 641, but must be at most data.context, 640"},
      {window, ", global: {of: groups}",
       "model.global.of is groups, but model.global.added is 0; set it to the most groups that a row has"},
      {window, ", global: {added: 3, sees: own_group}",
       "model.global.sees is own_group, but model.global.of is row, whose rows have no group; set of: groups"},
      {window, ", global: {added: 3, of: groups}",
       "model.global.sees is all, but then rows of groups would all read the same; set it to own_group, or "
       "model.attention.labels to the farthest distance that is told apart"},
      {window, ", global: {added: 3}",
       "model.global has rows that all positions see, but data.documents is separate; remove one, or set "
       "data.documents: rows",
       ", documents: separate"},
      {window + ", labels: 2", ", global: {added: 3, of: groups, contrast: 0.1}",
       "model.global.contrast is 0.1, but hidden groups find their rows only with model.global.of: groups and objective "
       "{kind: masked, unit: group}; set both, or remove it"},
      {window + ", labels: -1", "", "model.attention.labels is -1, but must be 0 or a positive whole number"},
      {window + ", labels: 4", ", rotary_base: 100, positions: none",
       "model.attention.labels is 4, but model.rotary_base is 100, with whose turns vectors of distances do not turn; "
       "remove one"},
  });
  std::string decoder = encoder_with("parts: [local], stride: 4, labels: 4");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"kind: encoder", "kind: decoder"},
                                 {"objective: {kind: masked}\n", ""}})
    decoder.replace(decoder.find(from), from.size(), to);
  const std::string error = user_error_of([&] { parse_recipe(decoder, "r.yaml"); });
  EXPECT_NE(error.find("model.attention.labels is 4, but only models that read in both directions have labels; use "
                       "model.distance"),
            std::string::npos)
      << error;
}

TEST(BlocksInRecipes, MistakesAreNamed) {
  const std::string window = "parts: [local], window: 9";
  const std::vector<Edit> edits = {
      {"parts: [shifted_block], blocks: 2, shifts: {0: 3, 2: 1}", "", "unknown key '2' in model.attention.shifts"},
      {"parts: [shifted_block], blocks: 2, shifts: {0: 3}", "",
       "model.attention.shifts adds up to 3 heads, but there are 4"},
      {"parts: [shifted_block], blocks: 700, shifts: {0: 4}", "",
       "model.attention.blocks is 700, but must be at most data.context, 640"},
      {"parts: [block_window], block: 641", "", "model.attention.block is 641, but must be at most data.context, 640"},
      {"parts: [block_window], block: 8, random: 2", "",
       "model.attention.random has no effect without a part that reads it (random_blocks); remove it"},
      {"parts: [dense], block: 8", "",
       "model.attention.block has no effect without a part that reads it (block_window, random_blocks); remove it"},
      {"parts: [local], window: 9, dilation: 2", "",
       "model.attention.dilation has no effect without a part that reads it (dilated); remove it"},
      {"parts: [block_window, random_blocks], block: 64, random: 3", "",
       "model.attention.integration is interleaved, but random_blocks needs one softmax over its blocks and the "
       "window's; set it to merged"},
      {"integration: merged, parts: [block_window, random_blocks], block: 64, random: 6", both_ends,
       "model.attention.random is 6, but of the 10 blocks of 64 positions only 5 are left beside the window and global "
       "ones; lower it, or model.attention.block"},
      {blocks, ", global: {first: 8, last: 4}",
       "model.global has 12 blocks of 64 positions, but data.context, 640, has 10"},
      {blocks, ", global: {first: 1, projections: own}",
       "model.global.projections is own, but global blocks of random_blocks share those of all rows; set it to shared"},
      {window, ", global: {first: 641}", "model.global.first is 641, but must be at most data.context, 640"},
      {window, ", global: {first: 1, last: 1}",
       "model.global.last is 1, but only blocks can be global at the end, with random_blocks; remove it"},
      {window, ", global: {projections: own}",
       "model.global.projections is own, but model.global.first and added are 0: no row has them; remove it"},
      {window, ", rotary_base: 100, positions: none, global: {first: 1, projections: own}",
       "model.global.projections is own, but model rotates or normalises queries and keys, which those of global rows "
       "cannot have yet; set it to shared"},
      {"parts: [dense]", ", global: {first: 1}",
       "model.global needs a window whose rows see the global ones as well, but model.attention.parts is neither one "
       "of "
       "local, fixed_block and block_window nor has random_blocks"},
      {window, ", global: {first: 1}",
       "model.global has rows at the ends of a row, but data.documents is separate, whose documents would not see "
       "them; "
       "remove one",
       ", documents: separate"},
  };
  expect_named(edits);
}

TEST(BlocksInRecipes, DecodersLookBackAlone) {
  const auto error = [](const std::string& attention) {
    return user_error_of([&] {
      parse_recipe(small_recipe, "r.yaml", {"model.positions=none", "model.attention={" + attention + "}"});
    });
  };
  EXPECT_EQ(error("parts: [block_window], block: 8"), "");
  EXPECT_EQ(error("parts: [dilated], window: 8, dilation: [1, 2]"), "");
  EXPECT_NE(error("parts: [shifted_block], blocks: 2, shifts: {0: 2}").find("whose blocks lie ahead"),
            std::string::npos);
  EXPECT_NE(error(std::string(blocks)).find("which lie ahead as well"), std::string::npos);
}

}  // namespace
}  // namespace longstride::testing::recipe_blocks_test
