// Commands on text in documents that do not see one another.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/core/files/safetensors.h"
#include "tests/support/command.h"
#include "tests/support/text_run.h"

namespace longstride::testing::documents_test {
namespace {

// A dataset of lines, and a recipe that keeps them apart.
void prepare_lines(const TemporaryDirectory& dir) {
  std::string text;
  for (int line = 0; line < 80; ++line) text += letters(1 + line % 37) + "\n";
  write_text(dir / "text.txt", text);
  write_text(dir / "r.yaml", text_recipe());
  const CommandResult prepared =
      run_command({"prepare", "bytes", "--input", "text.txt", "--documents", "lines", "--output", "x.h5"}, dir.path());
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
}

TEST(DocumentCommands, ShowAndExportTheGroupsAndWeightsOfRows) {
  const TemporaryDirectory dir;
  prepare_lines(dir);
  for (const std::string documents : {"separate", "rows"}) {
    const std::string set = "data.documents=" + documents;
    const CommandResult shown =
        run_command({"show", "batch", "r.yaml", "--set", set, "--step", "1", "--row", "1", "--json"}, dir.path());
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    const auto row = nlohmann::json::parse(shown.out)["rows"][0];
    const auto tokens = row["tokens"].get<std::vector<double>>(), groups = row["groups"].get<std::vector<double>>();
    for (std::size_t i = 1; i < groups.size(); ++i)
      EXPECT_EQ(groups[i] > groups[i - 1], tokens[i - 1] == '\n') << documents << " at " << i;
    EXPECT_EQ(row.contains("weights"), documents == "rows");
    const CommandResult exported =
        run_command({"export", "r.yaml", "--set", set, "--steps", "2", "--output", documents}, dir.path());
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    const SafetensorsReader file(dir / documents + "/batches.safetensors");
    std::vector<std::int32_t> all(2 * 2 * 64);
    file.read("groups", Tensor(all.data(), Dtype::i32, {2, 2, 64}));
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(all[3 * 64 + i], groups[i]) << documents;
  }
  const CommandResult text = run_command({"show", "batch", "r.yaml", "--set", "data.documents=separate"}, dir.path());
  EXPECT_NE(text.out.find("document 1    "), std::string::npos) << text.out;
}

TEST(DocumentCommands, EvalScoresDocumentsApartOrJoined) {
  const TemporaryDirectory dir;
  prepare_lines(dir);
  ASSERT_EQ(run_command({"train", "r.yaml", "--run", "run", "--set", "data.documents=separate"}, dir.path()).exit_code,
            0);
  const auto figure = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval", "run", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_command(arguments, dir.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto own = figure({}), apart = figure({"--documents", "separate"}), joined = figure({"--documents", "joined"});
  EXPECT_EQ(own["bits_per_byte"], apart["bits_per_byte"]);
  EXPECT_NE(own["bits_per_byte"], joined["bits_per_byte"]);
  EXPECT_EQ(own["documents"], "separate");
  EXPECT_FALSE(joined.contains("documents"));
}

}  // namespace
}  // namespace longstride::testing::documents_test
