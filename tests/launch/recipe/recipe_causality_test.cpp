// Every recipe in recipes/, at toy size: what a model says of a byte does not depend on that byte or on later ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/models/decoder/config.h"
#include "launch/recipe/recipe.h"
#include "tests/support/toy_model.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

// The recipe with few layers and a short context, which has several blocks or windows. Pictures keep their size.
Recipe toy_of(const std::string& path) {
  const Recipe published = read_recipe(path);
  const auto& model = dynamic_cast<const DecoderConfig&>(*published.model);
  std::vector<std::string> overrides = published.model->toy_overrides();
  for (const char* set : {"train.stages=[]", "train.global_batch=2", "train.micro_batch=0"}) overrides.push_back(set);
  const std::int64_t context = model.attention_given ? model.attention.stride : model.mixers.empty() ? 64 : 512;
  if (model.geometry.rows == 0) overrides.push_back("data.context=" + std::to_string(context));
  if (model.memory.compressed > 0)
    for (const char* set : {"model.memory.length=64", "model.memory.compressed=40", "model.memory.rate=4"})
      overrides.push_back(set);
  return read_recipe(path, overrides);
}

// In training's own precision, of a row that remembers what came before it.
TEST(RecipeCausality, NoLossDependsOnLaterBytes) {
  int tried = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LONGSTRIDE_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    if (dynamic_cast<const DecoderConfig*>(read_recipe(entry.path().string()).model.get()) == nullptr) continue;
    const Recipe recipe = toy_of(entry.path().string());
    test::ToyModel<float> toy(*recipe.model);
    toy.randomise();
    const std::int64_t n = recipe.data.context;
    for (std::uint64_t seed : {6, 7}) toy.remember(test::toy_tokens(n, seed), 1);
    std::vector<std::uint8_t> tokens = test::toy_tokens(n);
    const std::vector<float> before = toy.losses(tokens, 1);
    for (const std::int64_t position : {n / 3, n - 1}) {
      const auto changed = static_cast<std::size_t>(position);
      tokens[changed] ^= 0xFF;
      const std::vector<float> after = toy.losses(tokens, 1);
      tokens[changed] ^= 0xFF;
      for (std::size_t i = 0; i < changed; ++i) ASSERT_EQ(after[i], before[i]) << i << " before " << changed;
      EXPECT_NE(after[changed], before[changed]) << changed;
    }
    ++tried;
  }
  EXPECT_GE(tried, 30);
}

}  // namespace
}  // namespace longstride::testing
