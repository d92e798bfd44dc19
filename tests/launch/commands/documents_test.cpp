// Commands on text in documents that do not see one another.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

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
    EXPECT_TRUE(row["tokens"][0].is_number_integer()) << row["tokens"][0];
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
  EXPECT_EQ(text.out.find("padding"), std::string::npos) << text.out;
  const CommandResult rows = run_command({"show", "batch", "r.yaml", "--set", "data.documents=rows"}, dir.path());
  EXPECT_NE(rows.out.find("padding of "), std::string::npos) << rows.out;
  EXPECT_EQ(rows.out.find("\\x00"), std::string::npos) << rows.out;
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

// In the second window a line ends with the first position, and the next begins.
TEST(DocumentCommands, AttentionIsThatWithinDocuments) {
  const TemporaryDirectory dir;
  prepare_lines(dir);
  write_text(dir / "remembers.yaml",
             remembering_recipe("length: 64", "steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1", 64));
  for (const std::string recipe : {"r", "remembers"})
    for (const std::string documents : {"separate", "joined"}) {
      SCOPED_TRACE(recipe + " " + documents);
      const CommandResult trained = run_command(
          {"train", recipe + ".yaml", "--run", recipe + documents, "--set", "data.documents=" + documents}, dir.path());
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
      const CommandResult drawn = run_command({"attention", recipe + documents, "--split", "train", "--input", "1",
                                               "--layer", "0", "--head", "1", "--query", "0", "--query", "1"},
                                              dir.path());
      ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
      const auto pictures =
          nlohmann::json::parse(text_of(dir / (recipe + documents + "/attention/attention.json")))["pictures"];
      EXPECT_EQ(pictures[1]["entropy_bits"] == 0, documents == "separate") << pictures[1];
      if (recipe == "r") continue;
      EXPECT_GT(pictures[0]["weight_of_memory"], 0.5);
      EXPECT_EQ(pictures[1]["weight_of_memory"] == 0, documents == "separate");
      const double keys = documents == "separate" ? 11 : 65;  // weights of a model that has learned nothing are alike
      EXPECT_NEAR(pictures[0]["entropy_bits"].get<double>(), std::log2(keys), 0.2);
    }
}

std::string row_recipe(const std::string& objective) {
  return "name: labelled\ndata: {kind: bytes, path: x.h5, context: 24, documents: rows}\nobjective: " + objective +
         "\nmodel:\n  kind: encoder\n  layers: 1\n  width: 16\n  heads: 2\n  attention: {parts: [dense]}\n"
         "train: {steps: 150, global_batch: 16, lr: 1.0e-2, warmup: 5}\n";
}

// Records of random lengths, half of them of A and C, with a table that names their classes or labels.
void put_records(const TemporaryDirectory& dir, const std::string& one, const std::string& other) {
  std::string records, table;
  for (int i = 0; i < 400; ++i) {
    const char* const letters = i % 2 == 0 ? "ac" : "GT";
    std::string text;
    for (int at = 0; at < 8 + i % 20; ++at) text += letters[(at * at + i) % 3 % 2];
    records += ">r" + std::to_string(i) + " words\r\n" + text + "\r\n";
    table += "r" + std::to_string(i) + "\t" + (i % 2 == 0 ? one : other) + "\n";
  }
  write_text(dir / "r.fa", records);
  write_text(dir / "r.tsv", table);
  const CommandResult prepared = run_command({"prepare", "bytes", "--input", "r.fa", "--documents", "fasta", "--labels",
                                              "r.tsv", "--split", "0.7,0.1,0.2", "--output", "x.h5", "--force"},
                                             dir.path());
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
}

// Prepared, trained and evaluated: what letters a record has decides its class, and which of three labels it has.
TEST(LabelledDocuments, OfFastaAreLearned) {
  const TemporaryDirectory dir;
  for (const auto& [one, other, run, objective] :
       {std::tuple{"first", "second", "classes", "{kind: classes, classes: 2}"},
        std::tuple{"x,y", "y,z", "labels", "{kind: labels, labels: 3}"}}) {
    put_records(dir, one, other);
    write_text(dir / "r.yaml", row_recipe(objective));
    const CommandResult trained = run_command({"train", "r.yaml", "--run", run, "--device", "cpu"}, dir.path());
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const CommandResult scored = run_command({"eval", run, "--split", "test", "--json", "--device", "cpu"}, dir.path());
    ASSERT_EQ(scored.exit_code, 0) << scored.err;
    EXPECT_GT(nlohmann::json::parse(scored.out)["accuracy"].get<double>(), 0.95) << run;
    // Names come from the dataset; without it there are only numbers.
    write_text(dir / "gt.txt", "GTGTGGTTGTGT");
    for (const bool named : {true, false}) {
      if (!named) std::filesystem::rename(dir / "x.h5", dir / "moved.h5");
      const CommandResult predicted = run_command({"predict", run, "--input", "gt.txt", "--device", "cpu"}, dir.path());
      ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
      const nlohmann::json answer = nlohmann::json::parse(predicted.out), classes = {{"name", "second"}},
                           labels = {{"names", {"y", "z"}}}, none = nlohmann::json::object();
      nlohmann::json found = none;
      for (const char* key : {"name", "names"})
        if (answer.contains(key)) found[key] = answer[key];
      EXPECT_EQ(found, !named ? none : answer.contains("class") ? classes : labels) << predicted.out;
    }
  }
}

TEST(LabelledDocuments, OfAnotherNumberAreRefused) {
  const TemporaryDirectory dir;
  put_records(dir, "x,y", "y,z");
  const auto refuses = [&](const std::string& objective, const std::string& sentence) {
    write_text(dir / "r.yaml", row_recipe(objective));
    const CommandResult trained = run_command({"train", "r.yaml", "--run", "run", "--device", "cpu"}, dir.path());
    EXPECT_EQ(trained.exit_code, 2);
    EXPECT_NE(trained.err.find(sentence), std::string::npos) << trained.err;
  };
  refuses("{kind: labels, labels: 4}", "has 3 labels of every sequence, but objective.kind labels reads 4");
  refuses("{kind: classes, classes: 3}", "has 3 labels of every sequence, but objective.kind classes reads 1");
}

}  // namespace
}  // namespace longstride::testing::documents_test
