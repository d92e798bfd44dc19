// The output of `longstride plan --json`, `longstride show pattern` and `longstride bench attention --json`, compared
// with independent definitions.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/core/device/device.h"
#include "framework/core/text/numbers.h"
#include "framework/train/step/memory_plan.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

// The definitions of kernels/attention/pattern/pattern.h for l = 8, c = 2, written again.
bool expected_pair(const std::string& pattern, int head, int i, int j) {
  constexpr int l = 8, c = 2;
  if (j > i) return false;
  if (pattern == "dense") return true;
  if (pattern == "strided") return i - j <= l || (i - j) % l == 0;
  const bool block = i / l == j / l;
  const int from_end = l - 1 - j % l;
  return block || from_end / c == (pattern == "distinct" ? head % (l / c) : 0);
}

struct Case {
  const char* name;
  const char* attention;
};

const Case cases[] = {
    {"dense", "{integration: interleaved, parts: [dense], stride: 8}"},
    {"strided", "{integration: merged, parts: [local, column], stride: 8}"},
    {"fixed", "{integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2}"},
    {"distinct",
     "{integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2, distinct_heads: true}"},
};

std::vector<std::string> show(const Case& c, int head, const std::string& directory, std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "show",   "pattern",           "r.yaml", "--set", std::string("model.attention=") + c.attention,
      "--head", std::to_string(head)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const CommandResult r = run_command(arguments, directory);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  std::vector<std::string> lines;
  std::istringstream in(r.out);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Plan, ThePatternShownIsTheOneDefined) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  for (const Case& c : cases)
    for (int head : {0, 1}) {
      SCOPED_TRACE(c.name + std::string(", head ") + std::to_string(head));
      const std::vector<std::string> lines = show(c, head, dir.path(), {"--positions", "37"});
      ASSERT_EQ(lines.size(), 2u + 37u);
      for (int i = 0; i < 37; ++i) {
        std::string row = std::to_string(i);
        row.insert(0, 4 - row.size(), ' ');
        row += ' ';
        for (int j = 0; j <= i; ++j) row += !expected_pair(c.name, head, i, j) ? '.' : i == j ? '@' : '#';
        EXPECT_EQ(lines[static_cast<std::size_t>(2 + i)], row);
      }
    }
}

TEST(Plan, JsonHasTheNumbersOfTheModelAndOfTheMemoryPlan) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const CommandResult r =
      run_command({"plan", "r.yaml", "--ranks", "2", "--json", "--mfu", "0.35", "--peak-tflops", "989"}, dir.path());
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const nlohmann::json json = nlohmann::json::parse(r.out);
  const Recipe recipe = parse_recipe(small_recipe, "r.yaml");
  const auto model = recipe.model->make_model();
  const MemoryPlan plan = plan_memory(*model, recipe.train, 2);
  EXPECT_EQ(json.at("recipe"), "small");
  EXPECT_EQ(json.at("parameters"), model->parameters().count());
  EXPECT_EQ(json.at("steps"), 20);
  EXPECT_EQ(json.at("tokens"), 20 * 4 * 64);
  EXPECT_EQ(json.at("ranks"), 2);
  EXPECT_EQ(json.at("micro_batch"), 2);
  EXPECT_EQ(json.at("accumulation"), 1);
  EXPECT_DOUBLE_EQ(json.at("flops_per_step").get<double>(), 4 * model->cost(64).training_flops);
  const double flops = json.at("flops_per_step").get<double>() * 20;
  EXPECT_DOUBLE_EQ(json.at("seconds").get<double>(), flops / (0.35 * 989e12 * 2));
  std::int64_t sum = 0;
  for (const char* purpose : {"parameters", "gradients", "exchange", "optimizer", "average", "batch", "activations",
                              "input", "communication", "snapshot"})
    sum += json.at("bytes_per_rank").at(purpose).get<std::int64_t>();
  EXPECT_EQ(json.at("bytes_per_rank").at("total"), sum);
  EXPECT_EQ(json.at("bytes_per_rank").at("total"), plan.total());
  EXPECT_EQ(json.at("bytes_per_rank").at("activations"), plan.activations);
}

TEST(Plan, NamesTheStatesOfHeadsThatKeepNoKeys) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", mixed_recipe);
  const std::string mixers = "model.mixers=[{kind: scan, features: softmax, count: 32, layers: 2}, {kind: scan}]";
  const CommandResult r = run_command({"plan", "r.yaml", "--json", "--set", mixers}, dir.path());
  EXPECT_EQ(nlohmann::json::parse(r.out).at("states"),
            (std::vector<std::string>{"32 x 9 numbers per head in place of keys, 2,304 bytes per sequence and layer",
                                      "8 x 8 numbers per head in place of keys, 512 bytes per sequence and layer"}));
}

TEST(Plan, EveryStageIsPricedAndTheTimeIsTheirSum) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const std::string stages = "train.stages=[{until: 5, context: 16}, {until: 8, context: 32}]";
  const CommandResult r =
      run_command({"plan", "r.yaml", "--json", "--set", stages, "--mfu", "0.35", "--peak-tflops", "989"}, dir.path());
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const nlohmann::json json = nlohmann::json::parse(r.out);
  const auto model = parse_recipe(small_recipe, "r.yaml").model->make_model();
  const auto flops = [&](std::int64_t context) {
    return 4 * 64 / static_cast<double>(context) * model->cost(context).training_flops;
  };
  ASSERT_EQ(json.at("stages").size(), 3u);
  EXPECT_EQ(json.at("stages")[1].at("until"), 8);
  EXPECT_EQ(json.at("stages")[1].at("context"), 32);
  EXPECT_DOUBLE_EQ(json.at("stages")[1].at("flops_per_step").get<double>(), flops(32));
  EXPECT_EQ(json.at("stages")[2].at("until"), 20);
  EXPECT_EQ(json.at("stages")[2].at("context"), 64);
  EXPECT_LT(flops(16), flops(64));
  EXPECT_DOUBLE_EQ(json.at("seconds").get<double>(),
                   (5 * flops(16) + 3 * flops(32) + 12 * flops(64)) / (0.35 * 989e12));
  const CommandResult text = run_command({"plan", "r.yaml", "--set", stages}, dir.path());
  EXPECT_NE(text.out.find("until step 5: 16 sequences of 16, "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("until step 20: 4 sequences of 64, "), std::string::npos) << text.out;
}

// Not at a GPU's rate, which turned minutes into microseconds.
TEST(Plan, TheTimeOnTheCpuIsThatOfAMeasuredRate) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const auto planned = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"plan", "r.yaml", "--device", "cpu", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const CommandResult r = run_command(arguments, dir.path());
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto number = [](const nlohmann::json& plan, const char* key) { return plan.at(key).get<double>(); };
  const nlohmann::json measured = planned({}), assumed = planned({"--mfu", "0.25"}),
                       given = planned({"--peak-tflops", "2"});
  EXPECT_EQ(measured.at("peak_measured"), true);
  EXPECT_GT(number(measured, "peak_tflops"), 1e-4);
  EXPECT_LT(number(measured, "peak_tflops"), 100);
  EXPECT_EQ(number(measured, "mfu"), 0.5);
  EXPECT_EQ(number(assumed, "mfu"), 0.25);
  EXPECT_EQ(given.at("peak_measured"), false);
  EXPECT_EQ(number(given, "peak_tflops"), 2);
  for (const nlohmann::json& plan : {measured, assumed, given}) {
    const double flops = number(plan, "flops_per_step") * 20, rate = number(plan, "mfu") * number(plan, "peak_tflops");
    EXPECT_NEAR(number(plan, "seconds") * rate * 1e12 / flops, 1, 1e-9);
  }
  const CommandResult text = run_command({"plan", "r.yaml", "--device", "cpu"}, dir.path());
  EXPECT_NE(text.out.find("measured here with matrix products"), std::string::npos) << text.out;
}

TEST(Plan, RanksDivideSequencesAndTheOptimizersState) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const auto planned = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {"plan", "r.yaml", "--json", "--device", "cpu", "--ranks", "2"};
    for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
    const CommandResult r = run_command(arguments, dir.path());
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto bytes = [](const nlohmann::json& plan, const char* key) {
    return plan.at("bytes_per_rank").at(key).get<double>();
  };
  const auto whole = planned({"train.micro_batch=1"}), sharded = planned({"optimizer.shard=true"});
  const auto divided = planned({"parallel.sequence_ranks=2", "train.micro_batch=1"});
  EXPECT_NEAR(bytes(sharded, "optimizer"), bytes(whole, "optimizer") / 2, 1024);
  EXPECT_LT(bytes(divided, "tape"), 0.65 * bytes(whole, "tape"));  // more than half: the output is kept in both orders
  EXPECT_EQ(divided.at("accumulation"), 4);
  EXPECT_EQ(whole.at("accumulation"), 2);
}

// The sentence in which `plan` calls r.yaml's attention slow.
std::string slow_in(const TemporaryDirectory& dir, const std::vector<std::string>& settings,
                    const std::string& device = "gpu") {
  std::vector<std::string> arguments = {"plan", "r.yaml", "--device", device, "--json"};
  for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
  const CommandResult r = run_command(arguments, dir.path());
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return nlohmann::json::parse(r.out).value("slow_attention", "");
}
const std::string portable = "use kernels that are several times as slow as those written for Hopper";

TEST(Plan, ForAGpuNamesTheShapeThatIsSlowAndTheNearestFastOnes) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const auto slow = [&](const std::vector<std::string>& settings, const std::string& device = "gpu") {
    return slow_in(dir, settings, device);
  };
  const std::string heads = "heads of size 8 " + portable + "; 16 is fast (model.width / model.heads)";
  EXPECT_EQ(slow({}), heads);
  EXPECT_EQ(slow({}, "cpu"), "");
  EXPECT_EQ(slow({"train.precision=fp32"}), "");
  const CommandResult text = run_command({"plan", "r.yaml", "--device", "gpu"}, dir.path());
  EXPECT_NE(text.out.find("slow                  " + heads + '\n'), std::string::npos) << text.out;

  const std::string wide = "model.width=96", stride = "model.attention.stride=30", context = "data.context=120";
  for (const char* summary : {"5", "8", "20"})
    EXPECT_EQ(slow({wide, stride, context, std::string("model.attention.summary=") + summary}), "") << summary;
  EXPECT_EQ(slow({wide, stride, "data.context=127", "model.attention.integration=multihead"}), "");
  const auto of_summary = [&](const std::string& width, const std::string& summary) {
    return slow({"model.width=" + width, "model.attention.stride=222", "data.context=32746",
                 "model.attention.summary=" + summary});
  };
  EXPECT_EQ(of_summary("128", "10"),
            "summaries of 10 positions take 1.6 times as long as their operations suggest; 16 is fast "
            "(model.attention.summary)");
  EXPECT_EQ(of_summary("128", "16"), "");
  EXPECT_EQ(of_summary("64", "10"), "");  // heads of 32
  EXPECT_EQ(slow({"model.width=64", "model.attention.stride=116", "data.context=5435", "model.attention.summary=11"}),
            "summaries of 11 positions take 1.8 times as long as their operations suggest; 16 is fast "
            "(model.attention.summary)");

  const auto of_part = [&](const std::string& part, const std::string& width, const std::string& window = "0",
                           const std::string& positions = "data.context=256") {
    return slow({"model.attention={parts: [" + part + "], integration: merged, stride: 4, window: " + window + "}",
                 "model.width=" + width, positions});
  };
  EXPECT_EQ(of_part("local", "192", "34"),
            "windows of 34 take 1.5 times as long as their operations suggest with heads above 64; 66 is fast "
            "(model.attention.window), or heads of 64 (model.width / model.heads)");
  EXPECT_EQ(of_part("local", "192", "65").substr(0, 31), "windows of 65 take 1.5 times as");
  EXPECT_EQ(of_part("local", "192", "66"), "");
  EXPECT_EQ(of_part("local", "192", "256"), "");  // the whole context
  EXPECT_EQ(of_part("local", "128", "34"), "");
  EXPECT_EQ(of_part("column", "192"),
            "columns of 64 positions take 1.6 times as long as their operations suggest; strides of up to 3 are fast "
            "(model.attention.stride)");
  EXPECT_EQ(of_part("column", "128").substr(0, 32), "columns of 64 positions take 1.8");
  const std::string longer = "data.context=260";
  EXPECT_EQ(of_part("column", "128", "0", longer), "");
  EXPECT_EQ(of_part("column", "48", "0", longer),
            "columns with heads of 24 take 1.4 times as long as with heads of 32 (model.width / model.heads)");
  EXPECT_EQ(of_part("local", "48"), "");
}

TEST(Plan, ForAGpuNamesWhatMakesAttentionWithDistancesSlow) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_distance_recipe);
  const auto of_heads = [&](const std::string& width) { return slow_in(dir, {"model.width=" + width}); };
  const auto sentence = [&](const std::string& size, const std::string& fast) {
    return "heads of size " + size + " with model.distance " + portable + "; " + fast +
           " fast (model.width / model.heads)";
  };
  EXPECT_EQ(of_heads("16"), sentence("8", "40 is"));
  EXPECT_EQ(of_heads("78"), sentence("39", "40 is"));
  EXPECT_EQ(of_heads("80"), "");
  EXPECT_EQ(of_heads("100"), sentence("50", "48 and 56 are"));
  EXPECT_EQ(of_heads("128"), "");
  EXPECT_EQ(of_heads("256"), sentence("128", "64 is"));
  EXPECT_EQ(slow_in(dir, {}, "cpu"), "");
  EXPECT_EQ(slow_in(dir, {"train.precision=fp32"}), "");

  write_text(dir / "r.yaml", edited(small_distance_recipe, "    span:\n      longest: 50\n", ""));
  const auto of_distance = [&](std::vector<std::string> settings) {
    settings.emplace_back("model.width=128");
    return slow_in(dir, settings);
  };
  EXPECT_EQ(of_distance({"model.distance.dropout=0.1"}),
            "dropout of attention probabilities " + portable + "; 0 is fast (model.distance.dropout)");
  EXPECT_EQ(of_distance({"data.documents=separate"}),
            "documents apart with model.distance " + portable + "; joined is fast (data.documents)");
  EXPECT_EQ(of_distance({"model.distance.distances=127"}),
            "tables of 127 rows, of which the last stands for several distances, " + portable +
                "; a row for every distance is fast (model.distance.distances)");
  EXPECT_EQ(of_distance({"model.distance.distances=128"}), "");
  EXPECT_EQ(of_distance({"model.distance.distances=100", "model.distance.window=100"}), "");
  EXPECT_NE(of_distance({"model.distance.distances=99", "model.distance.window=100"}), "");
  const auto dilated = [&](const std::string& step) {
    return of_distance({"model.distance.dilation=" + step, "model.distance.dilated_heads=1"});
  };
  EXPECT_EQ(dilated("3"), "heads with a dilation of 3 " + portable +
                              ", unless it divides the context and the memory; 1 is fast (model.distance.dilation)");
  EXPECT_EQ(dilated("4"), "");
}

TEST(Plan, OfFp8SaysWhatDoesNotGainFromIt) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const auto planned = [&](const std::string& width, const std::string& heads, const std::string& precision) {
    const CommandResult r = run_command({"plan", "r.yaml", "--device", "gpu", "--json", "--set", "model.width=" + width,
                                         "--set", "model.heads=" + heads, "--set", "train.precision=" + precision},
                                        dir.path());
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const std::string narrow =
      "products 16 wide are expected to take longer in fp8 than in bf16; fp8 gains from a width of about 768 "
      "(model.width)";
  EXPECT_EQ(planned("16", "2", "fp8").value("fp8", ""), narrow);
  EXPECT_EQ(planned("16", "2", "bf16").value("fp8", ""), "");
  EXPECT_EQ(planned("768", "16", "fp8").value("fp8", ""), "");
  EXPECT_EQ(planned("24", "2", "fp8").value("fp8", ""),
            "8 of 8 linear layers multiply in bf16, because their sizes are not multiples of 16, as "
            "layers.0.attention.query_key_value.weight with 72 x 24");
  const CommandResult text =
      run_command({"plan", "r.yaml", "--device", "gpu", "--set", "train.precision=fp8"}, dir.path());
  EXPECT_NE(text.out.find("fp8                   " + narrow + '\n'), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("on a GPU in bf16, products of linear layers in fp8\n"), std::string::npos) << text.out;
  const auto bytes = [&](const nlohmann::json& plan, const char* key) {
    return plan.at("bytes_per_rank").at(key).get<std::int64_t>();
  };
  const auto rounded = planned("64", "2", "fp8"), exact = planned("64", "2", "bf16");
  EXPECT_EQ(rounded.at("compute"), "bf16");
  EXPECT_EQ(bytes(rounded, "tape"), bytes(exact, "tape"));  // backward's operands are not rounded to 8 bits
  for (const char* key : {"parameters", "gradients", "optimizer", "snapshot"})
    EXPECT_EQ(bytes(rounded, key), bytes(exact, key)) << key;
}

// Planning needs neither a GPU nor a build with CUDA.
TEST(Plan, ForAGpuCountsTheLowPrecisionCopyAndTheLibrariesInOneBlock) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const auto planned = [&](const std::string& device, const std::string& precision, const char* residual = "fp32") {
    const CommandResult r =
        run_command({"plan", "r.yaml", "--json", "--device", device, "--set", "train.precision=" + precision, "--set",
                     std::string("train.residual=") + residual},
                    dir.path());
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto cpu = planned("cpu", "automatic"), narrow = planned("gpu", "automatic"), wide = planned("gpu", "fp32");
  EXPECT_EQ(cpu.at("compute"), "fp32");
  EXPECT_EQ(narrow.at("compute"), "bf16");
  EXPECT_EQ(wide.at("compute"), "fp32");
  const auto bytes = [](const nlohmann::json& plan, const char* key) {
    return plan.at("bytes_per_rank").at(key).get<std::int64_t>();
  };
  EXPECT_EQ(bytes(cpu, "libraries"), 0);
  EXPECT_EQ(bytes(narrow, "libraries"), 32 << 20);
  EXPECT_NEAR(static_cast<double>(bytes(narrow, "parameters")), 1.5 * static_cast<double>(bytes(wide, "parameters")),
              256);
  EXPECT_EQ(bytes(narrow, "gradients"), bytes(cpu, "gradients"));
  EXPECT_LT(bytes(narrow, "activations"), bytes(wide, "activations"));
  EXPECT_LT(bytes(planned("gpu", "bf16", "bf16"), "activations"), bytes(narrow, "activations"));
  EXPECT_EQ(bytes(narrow, "block"), 34576384);  // in every build, whatever its kernels
  EXPECT_EQ(bytes(wide, "block"), 34659328);
  for (const auto& plan : {cpu, narrow, wide})
    EXPECT_EQ(bytes(plan, "block"),
              bytes(plan, "total") - bytes(plan, "input") - bytes(plan, "communication") - bytes(plan, "snapshot"));
}

TEST(Plan, DensityIsTheShareOfTheCausalPairs) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  for (const Case& c : cases) {
    double pairs = 0;
    for (int head : {0, 1})
      for (int i = 0; i < 64; ++i)
        for (int j = 0; j <= i; ++j) pairs += expected_pair(c.name, head, i, j) ? 0.5 : 0;
    const std::string attention = std::string("model.attention=") + c.attention;
    const CommandResult r = run_command({"plan", "r.yaml", "--json", "--set", attention}, dir.path());
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_DOUBLE_EQ(nlohmann::json::parse(r.out).at("attention_density").get<double>(), pairs / (64 * 65 / 2))
        << c.name;
  }
}

// A segment of 24, a memory of 48 and a compressed one of 16 rows of 3 positions, in 2 layers.
const std::string compressive_recipe =
    remembering_recipe("length: 48, compressed: 16, rate: 3", "steps: 3, global_batch: 4, lr: 1.0e-3, warmup: 1", 24);

struct Planned {
  nlohmann::json json;
  std::string text;
};

Planned planned_memory(const std::string& recipe, const std::vector<std::string>& settings) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", recipe);
  std::vector<std::string> arguments = {"plan", "r.yaml", "--device", "cpu"};
  for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
  const CommandResult text = run_command(arguments, dir.path());
  EXPECT_EQ(text.exit_code, 0) << text.err;
  arguments.emplace_back("--json");
  return {nlohmann::json::parse(run_command(arguments, dir.path()).out), text.out};
}

// One query's keys, counted pair by pair.
double keys_per_query(int before, int segment, int window, int step) {
  double pairs = 0;
  for (int i = 0; i < segment; ++i)
    for (int j = 0; j <= before + i; ++j) {
      const int distance = before + i - j;
      pairs += distance % step == 0 && (window == 0 || distance / step < window);
    }
  return pairs / segment;
}

TEST(Plan, OfAModelThatRemembersSaysWhatItSeesKeepsAndReaches) {
  const Planned all = planned_memory(compressive_recipe, {});
  const nlohmann::json& m = all.json.at("memory");
  EXPECT_EQ(m.at("rows"), 48);
  EXPECT_EQ(m.at("compressed_rows"), 16);
  EXPECT_EQ(m.at("rate"), 3);
  EXPECT_DOUBLE_EQ(m.at("keys_per_query").get<double>(), keys_per_query(64, 24, 0, 1));
  EXPECT_DOUBLE_EQ(m.at("causal_keys_per_query").get<double>(), keys_per_query(64, 24, 0, 1));
  // Two layers' 64 rows of 16 elements, and the number of remembered positions, in cells of 64 elements.
  EXPECT_EQ(m.at("bytes_per_sequence"), 2 * 4 * (2 * 64 * 16 + 64));
  EXPECT_EQ(m.at("bytes_per_sequence").get<std::int64_t>() * 4, all.json.at("bytes_per_rank").at("states"));
  EXPECT_EQ(m.at("reach_of_layer"), (nlohmann::json{{"farthest", 48 + 48 + 23}, {"before_segment", 48 + 48}}));
  EXPECT_EQ(m.at("reach"), (nlohmann::json{{"farthest", 2 * 96 + 23}, {"before_segment", 2 * 96}}));
  for (const std::string line :
       {"attention             76.5 keys per query on average, of 76.5 up to its own (compressed memory 16, memory 48, "
        "segment 24)\n",
        "memory                48 rows per layer and 16 compressed ones, one for every 3 that leave the memory: 16,896 "
        "bytes per sequence, in two buffers\n",
        "reach                 layer 0 by itself: 119 positions back (96 before the segment); 2 layers together: 215 "
        "positions back (192 before the segment)\n"})
    EXPECT_NE(all.text.find(line), std::string::npos) << line << all.text;
  EXPECT_EQ(all.text.find("causal pairs"), std::string::npos);
}

TEST(Plan, SeparatesThousandsAsOtherMessagesDo) {
  const Planned plan = planned_memory(compressive_recipe, {});
  const nlohmann::json& bytes = plan.json.at("bytes_per_rank");
  for (const char* key : {"parameters", "states", "activations", "total"})
    EXPECT_NE(plan.text.find(" " + thousands(bytes.at(key).get<std::int64_t>()) + " bytes "), std::string::npos)
        << key << plan.text;
  EXPECT_GT(bytes.at("total"), 1000);
  EXPECT_NE(plan.text.find("of which " + thousands(bytes.at("tape").get<std::int64_t>()) + " saved for backward"),
            std::string::npos)
      << plan.text;
}

TEST(Plan, WindowsDilationAndSpansLimitKeysAndReach) {
  const nlohmann::json windows =
      planned_memory(compressive_recipe, {"model.distance.window=[7, 9]", "model.distance.dilation=[1, 4]",
                                          "model.distance.dilated_heads=1", "model.memory={length: 48}"})
          .json.at("memory");
  const double keys =
      (2 * keys_per_query(48, 24, 7, 1) + keys_per_query(48, 24, 9, 1) + keys_per_query(48, 24, 9, 4)) / 4;
  EXPECT_DOUBLE_EQ(windows.at("keys_per_query").get<double>(), keys);
  EXPECT_EQ(windows.at("reach_of_layer").at("farthest"), 8 * 4);
  EXPECT_EQ(windows.at("reach").at("farthest"), 8 * 4 + 6);
  const std::string span = "model.distance.span={longest: 20, ramp: 8, initial: 0.1, loss: 0.1}";
  const Planned spans = planned_memory(compressive_recipe, {span, "model.memory={length: 48}"});
  // A ramp ends 8 positions behind its span, where the weight is 0.
  EXPECT_DOUBLE_EQ(spans.json.at("memory").at("keys_per_query").get<double>(), keys_per_query(48, 24, 28, 1));
  EXPECT_DOUBLE_EQ(spans.json.at("memory").at("initial_keys_per_query").get<double>(), keys_per_query(48, 24, 10, 1));
  EXPECT_EQ(spans.json.at("memory").at("reach").at("farthest"), 2 * 27);
  EXPECT_NE(spans.text.find("28 keys per query on average, of 60.5 up to its own (memory 48, segment 24); with the "
                            "longest spans, and 10 with the initial ones\n"),
            std::string::npos)
      << spans.text;
}

TEST(BenchAttention, OfARecipeWithDistancesTimesItsOwnMemoryTableAndBiases) {
  const TemporaryDirectory directory;
  const std::string recipe = LONGSTRIDE_SOURCE_DIR "/recipes/survey/text-8min-transformer-xl.yaml";
  const CommandResult result = run_command({"bench",
                                            "attention",
                                            recipe,
                                            "--set",
                                            "data.context=100",
                                            "--set",
                                            "model.memory.length=10",
                                            "--set",
                                            "model.width=128",
                                            "--set",
                                            "model.heads=4",
                                            "--set",
                                            "model.layers=2",
                                            "--batch",
                                            "2",
                                            "--repeats",
                                            "1",
                                            "--device",
                                            "cpu",
                                            "--json"},
                                           directory / "");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = nlohmann::json::parse(result.out).at("lines");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("name"), "distance (2, 4, 100 of 110, 32/32) forward");
  // 100 queries see 11 .. 110 keys, in 2 sequences of 4 heads, and a pair is 3 products of 32 forward and 8 backward.
  const double pairs = 2 * 4 * (100 * 10 + 100 * 101 / 2);
  EXPECT_EQ(lines[0].at("flops").get<double>(), pairs * 2 * 3 * 32);
  EXPECT_EQ(lines[1].at("flops").get<double>(), pairs * 2 * (3 + 8) * 32);
  EXPECT_GT(lines[1].at("ms").get<double>(), 0);
}

}  // namespace
}  // namespace longstride::testing
