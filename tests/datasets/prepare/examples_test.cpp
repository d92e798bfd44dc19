// Datasets of generated examples.
#include <map>
#include <set>

#include "datasets/prepare/examples/task.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride::examples_test {
namespace {

const Task& task_named(const std::string& name) {
  for (const Task& task : tasks())
    if (task.name == name) return task;
  throw std::runtime_error(name);
}

Example made(const Task& task, std::int64_t number, std::uint64_t seed = 1) {
  for (std::uint32_t attempt = 0;; ++attempt) {
    Draws draws(seed, number, attempt);
    if (auto example = task.make(draws)) return *example;
  }
}

// Value and depth of the expression at `at`, found by another way than that which made it.
int evaluated(const std::string& text, std::size_t& at, int depth, int& deepest) {
  deepest = std::max(deepest, depth);
  const char first = text.at(at++);
  if (first >= '0' && first <= '9') return first - '0';
  std::multiset<int> values;
  int sum = 0;
  while (text.at(at) != ']') {
    const int value = evaluated(text, at, depth + 1, deepest);
    values.insert(value);
    sum += value;
  }
  ++at;
  EXPECT_GE(values.size(), 2u);
  EXPECT_LE(values.size(), 10u);
  const auto half = std::next(values.begin(), static_cast<std::ptrdiff_t>((values.size() - 1) / 2));
  const int median = values.size() % 2 == 1 ? *half : (*half + *std::next(half)) / 2;
  return first == '<' ? *values.begin() : first == '>' ? *values.rbegin() : first == '~' ? median : sum % 10;
}

TEST(ListOps, ClassesAreTheValuesOfTheExpressions) {
  std::map<int, int> classes;
  for (std::int64_t i = 0; i < 200; ++i) {
    const Example example = made(task_named("listops"), i);
    const std::string text(example.bytes.begin(), example.bytes.end());
    std::size_t at = 0;
    int deepest = 0;
    EXPECT_EQ(evaluated(text, at, 1, deepest), example.label) << text;
    EXPECT_EQ(at, text.size());
    EXPECT_LE(deepest, 10);
    EXPECT_GT(text.size(), 500u);
    EXPECT_LT(text.size(), 2000u);
    ++classes[example.label];
  }
  EXPECT_EQ(classes.size(), 10u);
}

// How many are white, as dots are.
std::size_t brightest(const Bytes& pixels) {
  return static_cast<std::size_t>(std::count(pixels.begin(), pixels.end(), std::uint8_t{255}));
}

TEST(Pathfinder, PicturesHaveTwoDotsAndDashesInBothClasses) {
  std::map<int, int> classes;
  for (std::int64_t i = 0; i < 40; ++i) {
    const Example example = made(task_named("pathfinder"), i);
    ASSERT_EQ(example.bytes.size(), 1024u);
    ++classes[example.label];
    EXPECT_GE(brightest(example.bytes), 2u);  // dots are whole pixels
    EXPECT_LE(brightest(example.bytes), 18u);
    const auto lit = std::count_if(example.bytes.begin(), example.bytes.end(), [](std::uint8_t p) { return p > 60; });
    EXPECT_GT(lit, 2 * 14 * 2);  // two contours of 14 dashes, each 2 pixels long
    EXPECT_LT(lit, 500);
  }
  EXPECT_GT(classes[0], 8);
  EXPECT_GT(classes[1], 8);
}

TEST(PrepareExamples, AreTheSameForASeedWhateverTheThreads) {
  const Folder folder;
  PrepareExamplesConfig config;
  config.task = &task_named("listops");
  config.split = "600,30,20";
  prepare_examples(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  DataConfig rows;
  rows.documents = Documents::rows;
  std::set<Bytes> distinct;
  std::int64_t number = 0;
  for (const char* split : split_names) {
    const auto set = dataset->split(split, rows);
    for (std::int64_t s = 0; s < set->sequences(); ++s, ++number) {
      Bytes bytes(static_cast<std::size_t>(set->length(s)));
      set->read(s, 0, set->length(s), bytes.data());
      const Example expected = made(*config.task, number);
      EXPECT_EQ(bytes, expected.bytes);
      EXPECT_EQ(set->labels(s)[0], expected.label);
      distinct.insert(bytes);
    }
  }
  EXPECT_EQ(number, 650);
  EXPECT_EQ(distinct.size(), 650u);
  config.seed = 2;
  prepare_examples(config, to(folder / "y.h5"));
  EXPECT_NE(whole_split(*Dataset::open(folder / "y.h5"), "test"), whole_split(*dataset, "test"));
}

TEST(PrepareExamples, CommandsSayWhatTheyMadeAndRefuse) {
  const Folder folder;
  for (const Task& task : tasks()) {
    const Outcome made = call(fmt::format("prepare {1} --split 20,5,5 --output {0}/{1}.h5", folder.path(), task.name));
    EXPECT_EQ(made.code, 0) << made.text;
    EXPECT_NE(made.text.find(fmt::format("documents end with examples of {}", task.name)), std::string::npos)
        << made.text;
    EXPECT_NE(made.text.find("in 20 documents, labelled"), std::string::npos) << made.text;
    EXPECT_NE(made.text.find(fmt::format("{} classes", task.classes.size())), std::string::npos) << made.text;
  }
  for (const auto& [split, sentence] : {std::pair{"0.5,0.5", "must be numbers of examples"},
                                        {"0,0", "but there must be 1 to"},
                                        {"99999999,1", "but there must be 1 to 10,000,000"}}) {
    const Outcome refused = call(fmt::format("prepare listops --split {1} --output {0}/z.h5", folder.path(), split));
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.text.find(sentence), std::string::npos) << refused.text;
  }
}

}  // namespace
}  // namespace longstride::examples_test
