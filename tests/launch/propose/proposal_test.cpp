// `longstride recipe`: what it writes for text, pictures and sound, and that `train` takes it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "datasets/formats/png.h"
#include "datasets/formats/wav.h"
#include "launch/recipe/recipe.h"
#include "launch/recipe/settings_tree.h"
#include "launch/recipe/settings_writer.h"
#include "tests/support/text_run.h"

namespace longstride::testing::proposal_test {
namespace {

class ProposedRecipe : public TextRun {
 protected:
  ProposedRecipe() : TextRun(text_recipe(), {}) {
    std::filesystem::create_directory_symlink(LONGSTRIDE_SOURCE_DIR "/recipes", dir / "recipes");
  }

  nlohmann::json propose(std::vector<std::string> words) const {
    words.insert(words.begin(), "recipe");
    words.insert(words.end(), {"--minutes", "0.02", "--json"});
    return nlohmann::json::parse(run_well(words).out);
  }
  Recipe recipe(const std::string& name) const { return read_recipe(dir / name); }
};

TEST_F(ProposedRecipe, TrainsOnAText) {
  write_text(dir / "long.txt", letters(200000));
  run_well({"prepare", "bytes", "--input", "long.txt", "--output", "long.h5"});
  const nlohmann::json made = propose({"long.h5"});
  EXPECT_EQ(made.at("output"), "long.yaml");
  EXPECT_EQ(made.at("context"), 512);
  EXPECT_EQ(made.at("lr"), 4e-3);
  EXPECT_GT(made.at("milliseconds").get<double>(), 0);
  const Recipe text = recipe("long.yaml");
  EXPECT_EQ(text.train.steps, made.at("steps"));
  EXPECT_EQ(text.name, "long");
  EXPECT_FALSE(text.reproduces.given());
  EXPECT_TRUE(text.train.keep_best);
  run_well({"train", "long.yaml", "--set", "train.steps=2", "--set", "train.warmup=1", "--run", "trained"});
  EXPECT_TRUE(std::filesystem::exists(dir / "trained/recipe.yaml"));
  expect_refused({"recipe", "long.h5"},
                 "long.yaml: already exists; choose another --output, or replace it with --force");
}

// Too short a text for the context that the recipe begins with.
TEST_F(ProposedRecipe, HalvesTheContextAndTheRateFollowsByTheSquareRoot) {
  const nlohmann::json made = propose({"x.h5"});
  const std::int64_t context = made.at("context");
  EXPECT_LT(context, 512);
  EXPECT_EQ(512 % context, 0);
  EXPECT_NEAR(made.at("lr").get<double>(), 4e-3 * std::sqrt(static_cast<double>(context) / 512), 1e-5);
  EXPECT_NE(text("x.yaml").find("# 512 there; train has"), std::string::npos) << text("x.yaml");
  EXPECT_LE(made.at("passes").get<double>(), 60);
}

TEST_F(ProposedRecipe, AShorterContextKeepsNoStages) {
  const std::string train = "steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1, stages: [{until: 2, context: 2048}]";
  write_text(dir / "grows.yaml", text_recipe(1, train, 4096));
  const nlohmann::json made = propose({"x.h5", "--like", "grows.yaml", "--output", "own.yaml"});
  EXPECT_LT(made.at("context"), 2048);
  EXPECT_TRUE(recipe("own.yaml").train.stages.empty());
}

TEST_F(ProposedRecipe, HasAsManyClassesAsTheData) {
  std::string text, table;
  for (int i = 0; i < 40; ++i) {
    text += fmt::format(">r{}\n{}\n", i, "acgtacgtacgt");
    table += fmt::format("r{}\t{}\n", i, i % 3);
  }
  write_text(dir / "r.fa", text);
  write_text(dir / "r.tsv", table);
  run_well({"prepare", "bytes", "--input", "r.fa", "--documents", "fasta", "--labels", "r.tsv", "--split",
            "0.8,0.1,0.1", "--output", "three.h5"});
  write_text(dir / "ten.yaml", R"(name: ten
data: {kind: bytes, path: ten.h5, context: 96, documents: rows}
objective: {kind: classes, classes: 10}
model: {kind: encoder, layers: 1, width: 16, heads: 2, attention: {parts: [dense]}}
train: {steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1}
)");
  EXPECT_EQ(propose({"three.h5", "--like", "ten.yaml"}).at("context"), 96);  // longer than any document
  EXPECT_NE(text_of(dir / "three.yaml").find("classes: 3  # names of the data; 10 there"), std::string::npos)
      << text_of(dir / "three.yaml");
  run_well({"train", "three.yaml", "--set", "train.steps=2", "--set", "train.warmup=1", "--run", "three"});
}

TEST_F(ProposedRecipe, TakesAPictureAsContextAndItsRowAsStride) {
  std::filesystem::create_directories(dir / "photos");
  for (int i = 0; i < 40; ++i) {
    std::vector<std::uint8_t> pixels(48 * 48 * 3);
    for (std::size_t p = 0; p < pixels.size(); ++p) pixels[p] = static_cast<std::uint8_t>(p * (i + 1) / 7);
    write_png(dir / fmt::format("photos/{}.png", i), 48, 48, 3, pixels.data());
  }
  run_well({"prepare", "images", "--input", "photos", "--size", "48", "--output", "photos.h5"});
  const nlohmann::json made = propose({"photos.h5"});
  EXPECT_EQ(made.at("context"), 48 * 48 * 3);
  const Recipe pictures = recipe("photos.yaml");
  EXPECT_EQ(find_setting(parse_settings(pictures.resolved, "r"), "model.attention.stride")->scalar, "144");
  EXPECT_EQ(pictures.data.kind, DataKind::images);
  run_well({"plan", "photos.yaml", "--device", "cpu", "--peak-tflops", "1"});
}

TEST_F(ProposedRecipe, FitsSoundAndAnyRecipeThatItIsToldToBeginWith) {
  std::filesystem::create_directories(dir / "music");
  for (int i = 0; i < 20; ++i) {
    std::vector<float> wave(30000);
    for (std::size_t t = 0; t < wave.size(); ++t)
      wave[t] = static_cast<float>(std::sin(static_cast<double>(t) / (5 + i)));
    write_wav(dir / fmt::format("music/{}.wav", i), wave, 12000);
  }
  run_well({"prepare", "audio", "--input", "music", "--output", "music.h5"});
  propose({"music.h5"});
  EXPECT_EQ(recipe("music.yaml").data.kind, DataKind::audio);
  const nlohmann::json made = propose({"x.h5", "--like", "r.yaml", "--output", "own.yaml"});
  EXPECT_EQ(made.at("like"), "r.yaml");
  EXPECT_EQ(made.at("context"), 64);
  EXPECT_EQ(made.at("lr"), 1e-3);
}

TEST_F(ProposedRecipe, RefusesWhatItCannotUse) {
  expect_refused({"recipe", "text.bin"}, "text.bin: is not an HDF5 file; make one with `longstride prepare`");
  expect_refused_with({"recipe", "x.h5", "--like", "none"}, "none: cannot be read");
  expect_refused_with({"recipe", "x.h5", "--output", "r.txt"}, "r.txt: a recipe is YAML");
  expect_refused_with({"recipe", "x.h5", "--minutes", "0"}, "--minutes");
  write_text(dir / "short.txt", letters(60));
  run_well({"prepare", "bytes", "--input", "short.txt", "--output", "short.h5"});
  expect_refused_with({"recipe", "short.h5"}, "short.h5: ");
}

// A written tree is read back as it was, comments left out.
TEST(SettingsWriter, ATreeIsReadBackAsItWas) {
  const std::string text =
      "name: \"a # \\\"b\\\"\"\ndata:\n  kind: bytes\n  path: \"x: y\"\nmodel:\n  list: [1, {a: 2}, [3]]\n  none: "
      "null\n"
      "train: {}\n";
  const Setting tree = parse_settings(text, "t");
  const std::string written = settings_as_yaml(tree, {{"data.path", "why: {"}, {"model", "a section"}});
  EXPECT_NE(written.find("  path: \"x: y\"  # why: {\n"), std::string::npos) << written;
  EXPECT_EQ(settings_as_yaml(parse_settings(written, "w"), {}), settings_as_yaml(tree, {}));
}

}  // namespace
}  // namespace longstride::testing::proposal_test
