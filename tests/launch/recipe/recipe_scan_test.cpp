// Settings of a scan: what must agree, and what has no effect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "framework/mixers/scan/config.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::recipe_scan_test {
namespace {

std::string recipe_with(const std::string& keys, const std::string& model = "", const std::string& more = "") {
  return fmt::format(R"(name: small
data: {{kind: bytes, path: x.h5, context: 16, order: streams}}
model: {{kind: decoder, layers: 2, width: 16, heads: 2, positions: none{}, mixers: [{{kind: scan{}}}]}}
train: {{steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}}
{})",
                     model, keys, more);
}

struct Edit {
  const char *keys, *error;
};

const Edit edits[] = {
    {", form: gated", "decay is none, but form gated is one with a decay; set head or channel, or form: sum"},
    {", decay: head", "form is sum, which forgets nothing, but there is a decay; set form: gated, or decay: none"},
    {", form: gated, decay: row", "decay is row, but must be none or head or channel"},
    {", form: gated, decay: 0.5", "decay is 0.5, but must be none or head or channel"},
    {", form: linear", "form is linear, but must be sum or gated or delta"},
    {", form: gated, decay: head, beta: 2", "beta is 2, but only form delta reads it; remove it"},
    {", form: delta, beta: 3", "beta is 3, but must be 1, or 2 for states that may turn"},
    {", form: delta, features: relu",
     "features are given, but form delta needs keys of length 1, which features are not; set none"},
    {", form: gated, decay: channel, features: softmax",
     "decay is channel, but features are no channels of the keys; set head, or features: none"},
    {", features: elu", "features is elu, but must be none or softmax or trigonometric or relu"},
    {", features: softmax, count: 2048", "count is 2048, but must be a number of features from 1 to 1,024"},
    {", features: trigonometric, count: 33",
     "count is 33, but trigonometric features are pairs of a cosine and a sine; choose an even number"},
    {", features: softmax, orthogonal: qr", "orthogonal is qr, but must be gram_schmidt or hadamard or givens or none"},
    {", features: softmax, redraw: -1", "redraw is -1, but must be 0 or a positive whole number"},
    {", count: 64", "count has no effect, because there are no features; remove it, or set features"},
    {", redraw: 64", "redraw has no effect, because there are no features; remove it, or set features"},
    {", orthogonal: none", "orthogonal has no effect, because there are no features; remove it, or set features"},
    {", form: delta, normalise: true", "normalise is true, but form delta has no sum of keys to divide by; remove it"},
    {", normalise: true", "normalise is true, but products of plain queries and keys may add up to 0; set features"},
    {", features: softmax, normalise: false",
     "normalise is false, but what keeps softmax features finite cancels only in the quotient; set true"},
    {", stabiliser: published",
     "stabiliser is published, but only softmax and trigonometric features have one; remove it"},
    {", features: softmax, form: gated, decay: head, stabiliser: published",
     "stabiliser is published, but only form sum can have that; set running"},
    {", features: softmax, memory: state, stabiliser: published",
     "stabiliser is published, which looks at all keys of a window and none before; set running, or memory: none"},
    {", convolution: 5", "convolution is 5, but must be 0, for none, or 2 to 4"},
    {", convolution: 1", "convolution is 1, which reads no other position; set 0, for none, or 2 to 4"},
    {", norm: layer", "norm is layer, but must be automatic or none or rms"},
    {", convolution_bias: true", "convolution_bias is true, but there is no convolution; remove it, or set one"},
    {", form: delta, decay: head, time_step: true",
     "time_step is true, but only form gated with decay: head and without features has a step; remove it"},
    {", features: relu, skip: true",
     "skip is true, but values that pass by the quotient of features are no part of it; remove it"},
    {", norm: gated_rms, gate: false", "norm is gated_rms, but there is no gate; set gate: true, or norm: rms"},
    {", norm: gated_rms, key_heads: 1, value_size: 1000",
     "norm is gated_rms over 2000 elements, but must be over at most 1024; set more key_heads, or norm: rms"},
    {", key_heads: 3", "key_heads is 3, but must divide the number of heads, 2"},
    {", features: relu, key_heads: 1", "key_heads is 1, but with features every head has keys of its own; remove it"},
    {", key_size: 512", "key_size is 512, but must be 0, for the model's, or at most 256"},
    {", memory: rows", "memory is rows, but must be none or state"},
};

TEST(ScanSettingsTest, EveryMistakeHasASentenceOfItsOwn) {
  for (const Edit& edit : edits) {
    const std::string error = user_error_of([&] { parse_recipe(recipe_with(edit.keys), "r.yaml"); });
    const std::string start = "r.yaml:3: model.mixers.0.";
    EXPECT_TRUE(error.starts_with(start + edit.error)) << edit.keys << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(ScanSettingsTest, ALimitIsSaidOnce) {
  for (const char* keys : {", form: delta, beta: 3", ", features: softmax, count: 2048", ", convolution: 5"}) {
    const std::string error = user_error_of([&] { parse_recipe(recipe_with(keys), "r.yaml"); });
    EXPECT_EQ(error.find("at most"), std::string::npos) << error;
  }
}

TEST(ScanSettingsTest, MustAgreeWithTheModelAndTheRanks) {
  EXPECT_EQ(user_error_of(
                [] { parse_recipe(recipe_with(", features: relu, memory: state", ", rotary_base: 100"), "r.yaml"); }),
            "r.yaml:3: model.mixers.0.memory is state, but features of queries and keys that model.rotary_base rotates "
            "by their place in the window cannot continue; set model.rotary_base: 0");
  for (const auto& [ratio, kind, error] :
       {std::tuple{"0.75", "hadamard", "but keys of 6 elements are no power of two; set gram_schmidt or givens"},
        {"0.125", "givens", "but keys of one element have no plane to rotate in; set gram_schmidt"}})
    EXPECT_EQ(user_error_of([&] {
                parse_recipe(recipe_with(fmt::format(", features: relu, orthogonal: {}", kind),
                                         fmt::format(", key_ratio: {}", ratio)),
                             "r.yaml");
              }),
              fmt::format("r.yaml:3: model.mixers.0.orthogonal is {}, {}", kind, error));
  const auto divided = [](const std::string& keys) {
    return user_error_of(
        [&] { parse_recipe(recipe_with(keys, "", "parallel: {sequence_ranks: 2}\n"), "r.yaml", {"model.layers=3"}); });
  };
  const std::string start = "r.yaml:5: parallel.sequence_ranks is 2, but ";
  EXPECT_EQ(divided(", memory: state"), start + "model.mixers.0.memory is state, which needs whole rows; set it to 1");
  EXPECT_EQ(divided(", key_heads: 1"), start + "must divide model.mixers.0.key_heads, 1");
  EXPECT_EQ(divided("}, [{kind: scan, heads: 1}, {kind: attention, parts: [dense], heads: 1}], {kind: scan"),
            start + "must divide model.mixers.1.0.heads, 1");
}

TEST(ScanSettingsTest, WhatAttentionDoesToQueriesAndKeysNeedsFeaturesOrAttention) {
  for (const char* model : {", rotary_base: 100", ", query_key_norm: true"}) {
    const std::string error = user_error_of([&] { parse_recipe(recipe_with("", model), "r.yaml"); });
    EXPECT_TRUE(error.starts_with("r.yaml:3: model.")) << error;
    EXPECT_TRUE(error.ends_with("remove it")) << error;
    parse_recipe(recipe_with(", features: relu", model), "r.yaml");
    parse_recipe(recipe_with("}, {kind: attention, parts: [dense]", model), "r.yaml");
  }
}

// A ratio of decimals is close to what is meant.
TEST(ScanSettingsTest, KeysOfOneElementAreAWholeNumber) {
  EXPECT_EQ(decoder(parse_recipe(recipe_with("", ", key_ratio: 0.124999999"), "r.yaml")).key_size(), 1);
}

// A short entry is one of the named systems.
TEST(ScanSettingsTest, DefaultsAreThoseOfTheNamedSystems) {
  const auto resolved = [](const std::string& keys) {
    const Recipe recipe = parse_recipe(recipe_with(keys), "r.yaml");
    return dynamic_cast<const ScanConfig&>(decoder(recipe).mixers.front().beside.front().config()).settings.resolved();
  };
  const ScanSettings performer = resolved(", features: softmax");
  EXPECT_EQ(performer.normalise, Switch::on);
  EXPECT_EQ(performer.gate, Switch::off);
  EXPECT_EQ(performer.norm, ScanNorm::none);
  EXPECT_EQ(performer.count, 256);
  EXPECT_EQ(performer.orthogonal, kernels::Orthogonality::gram_schmidt);
  for (const char* keys :
       {", form: gated, decay: head", ", form: gated, decay: channel", ", form: delta, decay: head"}) {
    const ScanSettings gated = resolved(keys);
    EXPECT_EQ(gated.normalise, Switch::off);
    EXPECT_EQ(gated.gate, Switch::on);
    EXPECT_EQ(gated.norm, ScanNorm::rms);
  }
}

}  // namespace
}  // namespace longstride::testing::recipe_scan_test
