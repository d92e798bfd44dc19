// The recipe parser: defaults, every key, base, overrides, and the resolved recipe.
#include "launch/recipe/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "framework/train/stages.h"
#include "launch/recipe/recipe_reader.h"
#include "launch/recipe/recipe_writer.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing::recipe_test {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return user_error_of([&] { parse_recipe(text, "r.yaml", overrides); });
}

// The line of `key`, which must be the only one of its name, in the resolved recipe.
std::string resolved_line(const Recipe& recipe, const std::string& key) {
  const std::size_t at = recipe.resolved.find(key + ": ");
  return at == std::string::npos ? "" : recipe.resolved.substr(at, recipe.resolved.find('\n', at) - at);
}

TEST(Recipe, MissingKeysHaveTheDefaultsOfTheConfigStructs) {
  const Recipe r = parse_recipe(small_recipe, "r.yaml");
  Recipe expected;
  expected.name = "small";
  expected.data = {DataKind::bytes, "x.h5", 64, false};
  auto model = std::make_shared<DecoderConfig>();
  model->layers = 2;
  model->width = 16;
  model->heads = 2;
  model->attention.integration = kernels::Integration::merged;
  model->attention.parts = {kernels::PartKind::fixed_block, kernels::PartKind::fixed_summary};
  model->attention.stride = 8;
  model->attention.summary = {2};
  expected.model = model;
  expected.train.steps = 20;
  expected.train.global_batch = 4;
  expected.train.lr = 1e-3;
  expected.train.warmup = 2;
  RecipeWriter writer;
  visit_recipe(writer, expected);
  EXPECT_EQ(r.resolved, writer.text());
  EXPECT_EQ(r.model->context, 64);
  EXPECT_EQ(r.model->geometry.rows, 0);
}

TEST(Recipe, EveryKeyArrivesWhereItBelongs) {
  const Recipe r = parse_recipe(full_recipe, "r.yaml");
  EXPECT_EQ(r.name, "full: all keys");
  EXPECT_EQ(r.reproduces.table, 1);
  EXPECT_EQ(r.reproduces.row, "a \"row\" # of 1");
  EXPECT_EQ(r.reproduces.bits_per_byte, 0.99);
  EXPECT_EQ(r.reproduces.parameters, 94.9e6);
  EXPECT_EQ(r.reproduces.time_per_iteration, 0.5);
  ASSERT_EQ(r.unpublished.size(), 2u);
  EXPECT_EQ(r.unpublished[0], std::make_pair(std::string("train.lr"), std::string("so: 'chosen'")));
  EXPECT_EQ(r.data.kind, DataKind::images);
  EXPECT_EQ(r.data.path, "data/x y.h5");
  EXPECT_EQ(r.data.context, 192);
  EXPECT_TRUE(r.data.cross_files);
  const DecoderConfig& m = decoder(r);
  EXPECT_EQ(m.context, 192);
  EXPECT_EQ(m.geometry.rows, 8);
  EXPECT_EQ(m.geometry.columns, 8);
  EXPECT_EQ(m.geometry.channels, 3);
  EXPECT_EQ(m.layers, 3);
  EXPECT_EQ(m.width, 48);
  EXPECT_EQ(m.heads, 4);
  EXPECT_EQ(m.key_size(), 6);
  EXPECT_EQ(m.inner_width(), 60);
  EXPECT_EQ(m.dropout, 0.125);
  EXPECT_EQ(m.positions, Positions::data);
  EXPECT_EQ(decoder(parse_recipe(full_recipe, "r.yaml", {"model.positions=none"})).positions, Positions::none);
  EXPECT_EQ(m.rotary_base, 500);
  EXPECT_EQ(m.init_deviation, 0.02);
  EXPECT_EQ(m.init_deviations.embedding, 0.5);
  EXPECT_EQ(m.init_deviations.distance_table, 0);
  EXPECT_EQ(m.norm, NormOrder::post);
  EXPECT_EQ(m.activation, kernels::Activation::geglu);
  EXPECT_FALSE(m.attention_bias);
  EXPECT_FALSE(m.feed_forward_bias);
  EXPECT_TRUE(m.tied_output);
  EXPECT_TRUE(m.output_bias);
  EXPECT_TRUE(m.embedding_scale);
  EXPECT_TRUE(m.query_key_norm);
  EXPECT_EQ(m.init, InitReading::deviation);
  EXPECT_EQ(m.recompute, Recompute::attention_and_feed_forward);
  EXPECT_EQ(m.attention.integration, kernels::Integration::multihead);
  using enum kernels::PartKind;
  EXPECT_EQ(m.attention.parts, (std::vector{local, fixed_summary, first}));
  EXPECT_EQ(m.attention.stride, 12);
  EXPECT_EQ(m.attention.window, 5);
  EXPECT_EQ(m.attention.summary, (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(m.attention.distinct_heads);
  EXPECT_TRUE(m.attention.summary_inclusive);
  EXPECT_EQ(m.attention.first, 2);
  EXPECT_TRUE(m.attention_heads.sink);
  EXPECT_EQ(m.attention_heads.key_heads, 2);
}

TEST(Recipe, KeysOfOtherOptimizersAndSchedulesArriveWhereTheyBelong) {
  const TrainConfig t = parse_recipe(small_recipe, "r",
                                     {"optimizer.kind=adafactor", "optimizer.decay_rate=0.6",
                                      "optimizer.clip_threshold=0.5", "optimizer.scale_parameter=false",
                                      "train.schedule=reciprocal_sqrt", "train.decay_from=9", "train.lr_is=factor"})
                            .train;
  EXPECT_EQ(t.decay_rate, 0.6);
  EXPECT_EQ(t.clip_threshold, 0.5);
  EXPECT_FALSE(t.scale_parameter);
  EXPECT_EQ(t.decay_from, 9);
  EXPECT_EQ(t.lr_is, LearningRateIs::factor);
  EXPECT_DOUBLE_EQ(t.peak(), t.lr / 3);
  EXPECT_EQ(parse_recipe(small_recipe, "r", {"optimizer.kind=adagrad", "optimizer.tensor_clip=0.03"}).train.tensor_clip,
            0.03);
}

TEST(Recipe, AStageMayHaveOnlyALearningRate) {
  const TrainConfig t =
      parse_recipe(small_recipe, "r", {"train.stages=[{until: 3, lr: 2e-3}, {until: 5, lr: 5e-4}]"}).train;
  ASSERT_EQ(t.stages.size(), 2u);
  EXPECT_EQ(shape_at(t, 0, 64).sequence(), 64);
  const double expected[] = {2e-3, 2e-3, 2e-3, 5e-4, 5e-4, 1e-3, 1e-3};
  for (std::int64_t step = 0; step < 7; ++step) EXPECT_EQ(t.peak_at(step), expected[step]) << step;
}

TEST(Recipe, EveryKeyOfTrainArrivesWhereItBelongs) {
  const TrainConfig t = parse_recipe(full_recipe, "r.yaml").train;
  EXPECT_EQ(t.steps, 1000);
  EXPECT_EQ(t.global_batch, 8);
  EXPECT_EQ(t.micro_batch, 2);
  EXPECT_EQ(t.lr, 3.5e-4);
  EXPECT_EQ(t.warmup, 7);
  EXPECT_EQ(t.schedule, kernels::ScheduleKind::warmup_stable_decay);
  EXPECT_EQ(t.lr_floor, 2e-5);
  EXPECT_EQ(t.decay_steps, 250);
  EXPECT_EQ(t.beta1, 0.5);
  EXPECT_EQ(t.beta2, 0.75);
  EXPECT_EQ(t.epsilon, 1e-6);
  EXPECT_EQ(t.weight_decay, 0.03);
  EXPECT_EQ(t.clip, 0);
  EXPECT_EQ(t.ema, 0.999);
  EXPECT_EQ(t.precision, Precision::bf16);
  EXPECT_EQ(t.residual, Precision::bf16);
  EXPECT_EQ(t.seed, 9000000000u);
  EXPECT_FALSE(t.graph);
  EXPECT_EQ(t.log_every, 3);
  EXPECT_EQ(t.checkpoint_every, 22);
  EXPECT_EQ(t.keep, 0);
  EXPECT_TRUE(t.keep_best);
  EXPECT_EQ(t.evaluate_every, 11);
  EXPECT_EQ(t.evaluate_windows, 13);
  EXPECT_EQ(t.sample_every, 17);
  EXPECT_EQ(t.sample_count, 5);
  EXPECT_EQ(t.sample_length, 192);
  EXPECT_EQ(t.hang_seconds, 9);
  ASSERT_EQ(t.stages.size(), 2u);
  EXPECT_EQ(t.stages[0].until, 100);
  EXPECT_EQ(t.stages[0].context, 48);
  EXPECT_EQ(t.stages[1].until, 300);
  EXPECT_EQ(t.stages[1].context, 96);
  EXPECT_EQ(t.stages[0].lr, 0);
  EXPECT_EQ(t.stages[1].lr, 1e-3);
  EXPECT_EQ(t.optimizer, OptimizerKind::adam);
  EXPECT_EQ(parse_recipe(small_recipe, "r", {"optimizer.kind=muon"}).train.optimizer, OptimizerKind::muon);
  const TrainConfig adagrad = parse_recipe(small_recipe, "r", {"optimizer.kind=adagrad"}).train;
  EXPECT_EQ(adagrad.optimizer, OptimizerKind::adagrad);
  EXPECT_EQ(adagrad.epsilon, 1e-10);
  const TrainConfig adafactor = parse_recipe(small_recipe, "r", {"optimizer.kind=adafactor"}).train;
  EXPECT_EQ(adafactor.epsilon, 1e-30);
  EXPECT_EQ(adafactor.beta1, 0);
  EXPECT_EQ(parse_recipe(small_recipe, "r", {"optimizer.kind=adafactor", "train.beta1=0.9"}).train.beta1, 0.9);
  EXPECT_TRUE(t.parallel.shard);
  EXPECT_EQ(t.parallel.gradients, Precision::fp32);
  EXPECT_EQ(t.parallel.bucket, 1000000);
  EXPECT_EQ(t.parallel.overlap, Overlap::never);
  EXPECT_EQ(parse_recipe(full_recipe, "r.yaml", {"parallel.sequence_ranks=2", "train.micro_batch=1", "train.stages=[]"})
                .train.parallel.sequence_ranks,
            2);
}

// So a run of an earlier version, whose recipe has no objective, is resumed by its own recipe.
TEST(Recipe, TheDefaultObjectiveIsNotWritten) {
  const Recipe r = parse_recipe(small_recipe, "r.yaml"), said = parse_recipe(small_recipe, "r.yaml", {"objective={}"});
  EXPECT_STREQ(r.objective->kind(), "next_byte");
  EXPECT_EQ(r.model->objective, r.objective);
  EXPECT_EQ(r.resolved.find("objective"), std::string::npos);
  EXPECT_EQ(said.resolved, r.resolved);
  EXPECT_EQ(parse_recipe(small_recipe, "r.yaml", {"objective.kind=next_byte"}).resolved, r.resolved);
  EXPECT_EQ(error_of(small_recipe, {"objective.kind=previous_byte"}),
            "--set objective.kind=previous_byte: objective.kind is previous_byte, but must be next_byte or masked "
            "or classes or labels or spans or sentences");
}

TEST(Recipe, FullRecipeOfThisTestSetsEveryKeyThereIs) {
  RecipeWriter writer;
  Recipe any = parse_recipe(full_recipe, "r.yaml");
  visit_recipe(writer, any);
  const std::string all = std::string(full_recipe) + full_distance_recipe + mixed_recipe;
  for (const std::string& key : writer.keys())
    EXPECT_NE(all.find(key.substr(key.rfind('.') + 1) + ":"), std::string::npos) << key;
}

// A recipe's kind of attention follows from its sections, also when the resolved recipe is read again.
TEST(Recipe, HasEitherAPatternOrDistances) {
  const Recipe pattern = parse_recipe(small_recipe, "r"), distance = parse_recipe(full_distance_recipe, "r");
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(decoder(pattern).attention_given && !decoder(pattern).distance.given);
    EXPECT_TRUE(decoder(distance).distance.given && !decoder(distance).attention_given);
    EXPECT_EQ(parse_recipe(pattern.resolved, "r").resolved, pattern.resolved);
    EXPECT_EQ(parse_recipe(distance.resolved, "r").resolved, distance.resolved);
  }
  EXPECT_EQ(decoder(distance).distance.window, (std::vector<std::int64_t>{50, 60}));
  EXPECT_EQ(decoder(distance).memory.start, MemoryStart::zeros);
  const std::string both = edited(small_recipe, "  attention:", "  distance: {table: none}\n  attention:");
  EXPECT_THROW(parse_recipe(both, "r"), UserError);
}

TEST(Recipe, StagesCannotBeReadAsStreams) {
  const std::string streams = edited(small_recipe, "context: 64", "context: 64, order: streams");
  EXPECT_EQ(parse_recipe(streams, "r.yaml").data.order, DataOrder::streams);
  const std::string staged = edited(streams, "lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 16}]");
  try {
    parse_recipe(staged, "r.yaml");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "r.yaml:2: data.order is streams, but train.stages changes the context that a row continues from; "
                 "remove one of them");
  }
}

// Nothing of a row's place or memory changes.
TEST(Recipe, StagesOfStreamsMaySetLearningRatesWindowsAndMicroBatches) {
  const Recipe recipe = parse_recipe(
      full_distance_recipe, "r",
      {"train.stages=[{until: 5, lr: 1e-4, window: [8, 9]}, {until: 7, micro_batch: 2}, {until: 9, global_batch: 4}]"});
  ASSERT_EQ(recipe.train.stages.size(), 3U);
  EXPECT_EQ(recipe.train.stages[0].window, (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(recipe.train.stages[1].micro_batch, 2);
  const auto refusal = [](const std::string& stages) -> std::string {
    try {
      parse_recipe(full_distance_recipe, "r", {"train.stages=" + stages});
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("[{until: 5, global_batch: 8}]")
                .find("data.order is streams, but train.stages changes global_batch, the number of rows that continue; "
                      "remove it from the stages"),
            std::string::npos);
  EXPECT_NE(refusal("[{until: 5, window: [1, 2, 3]}]")
                .find("train.stages.window has 3 values, but must have one for all layers or one for each of "
                      "model.layers, 2"),
            std::string::npos);
}

TEST(Recipe, TheResolvedRecipeNamesEveryKeyAndParsesToItself) {
  for (const char* text : {small_recipe, full_recipe}) {
    const Recipe once = parse_recipe(text, "r.yaml");
    const Recipe twice = parse_recipe(once.resolved, "resolved");
    EXPECT_EQ(once.resolved, twice.resolved);
    for (const char* key :
         {"cross_files", "key_ratio", "init", "window", "summary_inclusive", "beta2", "epsilon", "keep"})
      EXPECT_NE(resolved_line(once, key), "") << key;
  }
}

// The resolved recipe is written from the config that the run then uses, so writing may change nothing in it.
TEST(Recipe, WritingARecipeDoesNotChangeItsModel) {
  const std::string attention =
      "attention:\n    integration: merged\n    parts: [fixed_block, fixed_summary]\n    stride: 8\n    summary: 2\n";
  for (const bool distance : {false, true}) {
    const std::string text = distance ? edited(edited(small_recipe, attention, "distance:\n    table: sinusoid\n"),
                                               "heads: 2", "heads: 2\n  positions: none")
                                      : std::string(small_recipe);
    const Recipe r = parse_recipe(text, "r.yaml");
    const auto& config = dynamic_cast<const DecoderConfig&>(*r.model);
    EXPECT_EQ(config.distance.given, distance);
    EXPECT_EQ(config.attention_given, !distance);
    const auto model = config.make_model();
    const auto& parameters = model->parameters().all();
    EXPECT_EQ(std::count_if(parameters.begin(), parameters.end(),
                            [](const Parameter& p) { return p.name == "layers.0.attention.distance.weight"; }),
              distance ? 1 : 0);
  }
}

// A checkpoint keeps the resolved recipe, from which the model is made again.
TEST(Recipe, AListOfMixersIsReadAsItIsWritten) {
  const Recipe once = parse_recipe(mixed_recipe, "r.yaml"), again = parse_recipe(once.resolved, "resolved.yaml");
  EXPECT_EQ(again.resolved, once.resolved);
  const auto model = once.model->make_model(), remade = again.model->make_model();
  const auto &parameters = model->parameters().all(), &remade_parameters = remade->parameters().all();
  ASSERT_EQ(remade_parameters.size(), parameters.size());
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    EXPECT_EQ(remade_parameters[k].name, parameters[k].name);
    EXPECT_EQ(remade_parameters[k].shape, parameters[k].shape);
  }
  EXPECT_NE(parse_recipe(edited(mixed_recipe, "window: 5", "window: 6"), "r.yaml").resolved, once.resolved);
}

// Runs and recipes from before the kind's name changed resolve to themselves, so resuming sees no change.
TEST(Recipe, TheEarlierNameOfADecoderIsKept) {
  const Recipe now = parse_recipe(small_recipe, "r.yaml");
  const Recipe before = parse_recipe(edited(small_recipe, "kind: decoder", "kind: sparse_transformer"), "r.yaml");
  EXPECT_EQ(before.resolved, edited(now.resolved, "kind: decoder", "kind: sparse_transformer"));
  EXPECT_EQ(decoder(before).width, decoder(now).width);
  const std::shared_ptr<ModelConfig> policy = before.model->recompute_policies().front().config;
  EXPECT_EQ(with_model(before, policy).resolved, before.resolved);
}

TEST(Recipe, ASummaryMayBeOneNumberOrAList) {
  EXPECT_EQ(decoder(parse_recipe(small_recipe, "r")).attention.summary, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(decoder(parse_recipe(edited(small_recipe, "summary: 2", "summary: [2, 3]"), "r")).attention.summary,
            (std::vector<std::int64_t>{2, 3}));
}

TEST(Recipe, CarriageReturnsCommentsAndAByteOrderMarkAreYaml) {
  std::string text = "\xef\xbb\xbf# a comment\n" + std::string(small_recipe);
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\r\n");
  EXPECT_EQ(parse_recipe(text, "r").resolved, parse_recipe(small_recipe, "r").resolved);
}

TEST(Recipe, ABasesReasonIsDroppedWithItsValue) {
  const TemporaryDirectory dir;
  write_text(dir / "base.yaml", edited(small_recipe, "name: small",
                                       "name: small\nunpublished: {train.lr: base, model.attention.stride: base, "
                                       "model.layers: base, model.dropout: base}"));
  write_text(dir / "r.yaml",
             "base: base.yaml\nname: mine\nunpublished: {model.layers: mine}\n"
             "model: {layers: 3, dropout: 0.5, attention: {stride: 4}}\n");
  std::vector<std::pair<std::string, std::string>> expected = {{"train.lr", "base"}, {"model.layers", "mine"}};
  EXPECT_EQ(read_recipe(dir / "r.yaml").unpublished, expected);
}

TEST(Recipe, BaseMergesMapsKeyByKeyAndReplacesLists) {
  const TemporaryDirectory dir;
  write_text(dir / "below/base.yaml", small_recipe);
  write_text(dir / "mine/r.yaml",
             "base: ../below/base.yaml\nname: mine\nmodel: {layers: 5, attention: {parts: [local, column]}}\n");
  const Recipe r = read_recipe(dir / "mine/r.yaml");
  EXPECT_EQ(r.name, "mine");
  EXPECT_EQ(decoder(r).layers, 5);
  EXPECT_EQ(decoder(r).width, 16);
  EXPECT_EQ(decoder(r).attention.parts, (std::vector{kernels::PartKind::local, kernels::PartKind::column}));
  EXPECT_EQ(decoder(r).attention.stride, 8);
  EXPECT_EQ(r.resolved.find("\nbase"), std::string::npos);
}

TEST(Recipe, MessagesNameTheFileThatHoldsTheValue) {
  const TemporaryDirectory dir;
  write_text(dir / "base.yaml", edited(small_recipe, "stride: 8", "stride: 0"));
  write_text(dir / "r.yaml", "base: base.yaml\nname: mine\n");
  EXPECT_EQ(
      user_error_of([&] { read_recipe(dir / "r.yaml"); }),
      (dir / "base.yaml") + ":11: model.attention.stride is 0, but fixed_block needs a positive number of positions");
  write_text(dir / "base.yaml", small_recipe);
  write_text(dir / "r.yaml", "base: base.yaml\nname: mine\nmodel:\n  heads: 3\n");
  EXPECT_EQ(user_error_of([&] { read_recipe(dir / "r.yaml"); }),
            (dir / "r.yaml") + ":4: model.heads is 3, but must divide model.width, 16");
}

TEST(Recipe, ABaseHasNoBaseItself) {
  const TemporaryDirectory dir;
  write_text(dir / "a.yaml", small_recipe);
  write_text(dir / "b.yaml", "base: a.yaml\n");
  write_text(dir / "c.yaml", "base: b.yaml\n");
  EXPECT_EQ(read_recipe(dir / "b.yaml").name, "small");
  EXPECT_EQ(user_error_of([&] { read_recipe(dir / "c.yaml"); }),
            (dir / "b.yaml") + ":1: a base has a base itself, but only one level is allowed; remove this one");
}

TEST(Recipe, OverridesAreAppliedInOrderAndTheirValuesAreYaml) {
  const Recipe r = parse_recipe(small_recipe, "r.yaml",
                                {"model.layers=3", "model.layers=12", "model.attention.parts=[local, column]",
                                 "train={steps: 7, global_batch: 2, lr: 0.5, warmup: 0}", "data.path=a=b.h5"});
  EXPECT_EQ(decoder(r).layers, 12);
  EXPECT_EQ(decoder(r).attention.parts.size(), 2u);
  EXPECT_EQ(r.train.steps, 7);
  EXPECT_EQ(r.data.path, "a=b.h5");
}

TEST(Recipe, MessagesOfOverridesNameTheFlag) {
  EXPECT_EQ(error_of(small_recipe, {"model.layers=0"}),
            "--set model.layers=0: model.layers is 0, but must be a positive whole number");
  EXPECT_EQ(error_of(small_recipe, {"model.layrs=3"}),
            "--set model.layrs=3: unknown key 'layrs' in model; did you mean 'layers'?");
  EXPECT_EQ(error_of(small_recipe, {"reproduces={table: 1, bits_per_byte: 1}"}),
            "--set reproduces={table: 1, bits_per_byte: 1}: reproduces.row is missing; add it (docs/guide/recipes.md "
            "lists every key)");
}

// With two letters of every key swapped, the message has the line, the section and the right spelling.
TEST(Recipe, TheNearestSpellingOfEveryKeyIsSuggested) {
  RecipeWriter writer;
  Recipe any = parse_recipe(full_recipe, "r.yaml");
  visit_recipe(writer, any);
  int tried = 0;
  for (const std::string& key : writer.keys()) {
    const std::string word = key.substr(key.rfind('.') + 1);
    if (word.size() < 3) continue;
    std::string wrong = word;
    std::swap(wrong[1], wrong[2]);
    if (wrong == word) continue;
    const std::string section = key.find('.') == std::string::npos ? "" : key.substr(0, key.rfind('.') + 1);
    const std::string error = error_of(any.resolved, {section + wrong + "=1"});
    EXPECT_NE(error.find("unknown key '" + wrong + "'"), std::string::npos) << error;
    EXPECT_NE(error.find("did you mean '" + word + "'?"), std::string::npos) << error;
    ++tried;
  }
  EXPECT_GT(tried, 35);
}

// Removes the line of `key` from the small recipe, after giving data's keys their own lines.
std::string without_line(const std::string& key) {
  std::string text =
      edited(small_recipe, "{kind: bytes, path: x.h5, context: 64}", "\n  kind: bytes\n  path: x.h5\n  context: 64");
  const std::size_t at = text.find(key + ":");
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.erase(begin, text.find('\n', at) - begin + 1);
}

TEST(Recipe, EveryRequiredKeyIsMissedByNameAndAtTheLineOfItsSection) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"name", "r.yaml:1: name"},
      {"path", "r.yaml:2: data.path"},
      {"context", "r.yaml:2: data.context"},
      {"layers", "r.yaml:6: model.layers"},
      {"width", "r.yaml:6: model.width"},
      {"heads", "r.yaml:6: model.heads"},
      {"parts", "r.yaml:11: model.attention.parts"},
      {"steps", "r.yaml:16: train.steps"},
      {"global_batch", "r.yaml:16: train.global_batch"},
      {"lr", "r.yaml:16: train.lr"},
  };
  for (const auto& [key, where] : cases)
    EXPECT_EQ(error_of(without_line(key)), where + " is missing; add it (docs/guide/recipes.md lists every key)");
  EXPECT_EQ(error_of(without_line("stride")),
            "r.yaml:11: model.attention.stride is 0, but fixed_block needs a positive number of positions");
}

TEST(Recipe, ARecipeCutShortIsReadOrRefusedWithASentenceForEachMistake) {
  for (const char* whole : {small_recipe, full_recipe}) {
    const std::string text = whole;
    for (std::size_t cut = 0; cut < 64; ++cut) {
      const std::string error = error_of(text.substr(0, text.size() * cut / 64));
      if (error.empty()) continue;
      std::istringstream lines(error);
      for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(line.starts_with("r.yaml:") || line.starts_with("  r.yaml:")) << cut << ": " << line;
    }
  }
}

}  // namespace
}  // namespace longstride::testing::recipe_test
