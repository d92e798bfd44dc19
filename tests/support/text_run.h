// A small model of text that every command runs in a moment, and a folder to run it in.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "tests/support/command.h"

namespace longstride::testing {

// `train`: the keys of the recipe's section of that name.
inline std::string text_recipe(int layers, const std::string& train) {
  return R"(name: small
data: {kind: bytes, path: x.h5, context: 64}
model:
  kind: sparse_transformer
  layers: )" +
         std::to_string(layers) + R"(
  width: 16
  heads: 2
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2}
train: {)" +
         train + "}\n";
}

// Writes text.bin, x.h5 prepared from it, and the recipe as r.yaml.
inline void prepare_text(const TemporaryDirectory& dir, const std::string& recipe) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
  write_text(dir / "text.bin", text);
  write_text(dir / "r.yaml", recipe);
  ASSERT_EQ(run_command({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"}, dir.path()).exit_code, 0);
}

}  // namespace longstride::testing
