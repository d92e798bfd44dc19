// `report` of several runs, and of a run that trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "launch/report/html.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// The data of the plots of a page, by title.
std::map<std::string, Json> plots_of(const std::string& page) {
  std::map<std::string, Json> plots;
  const std::string begin = "<script type=\"application/json\">";
  for (std::size_t at = 0; (at = page.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const Json plot = Json::parse(page.substr(at, page.find("</script>", at) - at));
    plots[plot.at("title")] = plot;
  }
  return plots;
}

bool reloads(const std::string& page) { return page.find("location.reload") != std::string::npos; }

class ReportPages : public TextRun {
 protected:
  ReportPages()
      : TextRun(
            text_recipe(1, "steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1, log_every: 1, evaluate_every: 2"),
            {{"train", "r.yaml", "--run", "one"}, {"train", "r.yaml", "--run", "two<i>", "--set", "train.lr=0.002"}}) {}
};
// As `show spans` has them: a mark per head, a row per layer, and the same figures with --json.
TEST_F(ReportPages, ShowTheSpansThatHeadsHaveLearned) {
  write_text(dir / "spans.yaml", R"(name: spanned
data: {kind: bytes, path: x.h5, context: 16, order: streams}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 4
  positions: none
  distance: {table: none, biases: none, span: {longest: 200, ramp: 4, initial: 0.25, loss: 0.01}}
train: {steps: 3, global_batch: 2, lr: 1.0e-2, warmup: 1, log_every: 1}
)");
  ASSERT_EQ(run({"train", "spans.yaml", "--run", "spanned"}).exit_code, 0);
  const CommandResult made = run({"report", "spanned", "--json", "--output", "spans.html"}),
                      shown = run({"show", "spans", "spanned", "--json"}),
                      both = run({"report", "one", "spanned", "--json", "--output", "with_spans.html"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const Json spans = Json::parse(shown.out), reported = Json::parse(made.out).at("spans");
  EXPECT_EQ(Json::parse(both.out).at("spans"), reported);
  EXPECT_EQ(reported.size(), 1U);
  for (const char* key : {"longest", "ramp", "mean", "largest", "layers"})
    EXPECT_EQ(reported.at("spanned").at(key), spans.at(key)) << key;
  EXPECT_EQ(spans.at("step"), 3);
  double sum = 0;
  for (const Json& layer : spans.at("layers"))
    for (const Json& span : layer) {
      EXPECT_NE(span.get<double>(), 50);  // where they began
      EXPECT_NEAR(span.get<double>(), 50, 3 * 0.011 * 200);
      sum += span.get<double>();
    }
  EXPECT_NEAR(spans.at("mean").get<double>(), sum / 8, 1e-9);
  const std::string text = text_of(dir / "spans.html");
  EXPECT_NE(text.find("<h2>Spans</h2>"), std::string::npos);
  EXPECT_EQ(count_of("<title>layer ", text), 8U);
  const auto plots = plots_of(text);
  ASSERT_TRUE(plots.contains("loss of span"));
  const Json& losses = plots.at("loss of span").at("series").at(0).at("points");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_NEAR(losses.at(0).at(1).get<double>(), 0.01 * 2 * 50, 1e-6);
  ASSERT_EQ(run({"report", "one", "--output", "without.html"}).exit_code, 0);
  EXPECT_EQ(text_of(dir / "without.html").find("<h2>Spans</h2>"), std::string::npos);
  expect_refused({"show", "spans", "one"},
                 "one: has no learned spans to show; only training with model.distance.span gives heads some");
}

TEST_F(ReportPages, SeveralRunsShareTheirPlots) {
  const CommandResult made = run({"report", "one", "two<i>", "--output", "both.html"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string text = text_of(dir / "both.html");
  const auto plots = plots_of(text);
  for (const char* title :
       {"bits per byte, valid", "bits per byte, training", "tokens per second", "gradient norm", "learning rate"}) {
    ASSERT_TRUE(plots.contains(title)) << title;
    ASSERT_EQ(plots.at(title).at("series").size(), 2U);
    EXPECT_EQ(plots.at(title).at("series").at(0).at("name"), "one");
    EXPECT_EQ(plots.at(title).at("series").at(1).at("name"), "two<i>");
    EXPECT_NE(plots.at(title).at("series").at(0).at("css"), plots.at(title).at("series").at(1).at("css"));
  }
  const Json& rates = plots.at("learning rate").at("series");
  for (std::size_t i = 0; i < 4; ++i) {
    const double one = rates.at(0).at("points").at(i).at(1), two = rates.at(1).at("points").at(i).at(1);
    EXPECT_NEAR(two, 2 * one, 1e-9);
  }
  EXPECT_EQ(plots.at("bits per byte, valid").at("series").at(0).at("points").size(), 2U);
  EXPECT_EQ(text.find("<i>"), std::string::npos);  // names are text
  EXPECT_NE(text.find("<td>train.lr</td><td>0.001</td><td>0.002</td>"), std::string::npos);
  EXPECT_EQ(text.find("<td>train.steps</td>"), std::string::npos);  // it does not differ
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  EXPECT_FALSE(reloads(text));
}

TEST_F(ReportPages, RunsOfOneNameAreToldApartByTheirPaths) {
  fs::create_directories(dir / "other");
  fs::copy(dir / "one", dir / "other/one", fs::copy_options::recursive);
  ASSERT_EQ(run({"report", "one", "other/one/", "--output", "same.html"}).exit_code, 0);
  const std::string text = text_of(dir / "same.html");
  EXPECT_EQ(plots_of(text).at("learning rate").at("series").at(1).at("name"), "other/one/");
  EXPECT_NE(text.find("<p>None.</p>"), std::string::npos);  // settings that differ
}

TEST_F(ReportPages, NineAndThirtyRunsAreToldApart) {
  for (const std::size_t count : {9U, 30U}) {
    std::vector<std::string> many = {"report", "--output", fmt::format("{}.html", count)};
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = fmt::format("many-{}-{}", count, i);
      fs::copy(dir / "one", dir / name, fs::copy_options::recursive);
      many.push_back(name);
    }
    const CommandResult result = run(many);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string text = text_of(dir / fmt::format("{}.html", count));
    const nlohmann::json curves = plots_of(text).at("learning rate").at("series");
    std::set<std::string> looks;
    for (const auto& curve : curves) looks.insert(curve.at("css").get<std::string>());
    EXPECT_EQ(looks.size(), count);
    EXPECT_TRUE(looks.contains("a p1"));
    EXPECT_NE(text.find(fmt::format("<h1>{} runs</h1>", count)), std::string::npos);
  }
}

TEST_F(ReportPages, CurvesMayBeOverBytesOrSeconds) {
  const auto across = [&](const std::string& by, const std::vector<std::string>& runs) {
    std::vector<std::string> words = {"report", "--by", by, "--output", "by.html", "--force"};
    words.insert(words.end(), runs.begin(), runs.end());
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json plot = plots_of(text_of(dir / "by.html"))
                                    .at(by == "step" || runs.size() == 1 ? "learning rate" : "learning rate, by " + by);
    EXPECT_EQ(plot.at("by"), by);
    std::vector<double> places;
    for (const auto& point : plot.at("series").at(0).at("points")) places.push_back(point.at(0));
    return places;
  };
  const std::vector<double> steps = across("step", {"one"}), bytes = across("bytes", {"one"});
  ASSERT_EQ(bytes.size(), steps.size());
  const double per_step = bytes.front() / steps.front();
  EXPECT_GE(per_step, 64);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_DOUBLE_EQ(bytes[i], per_step * steps[i]);
  const std::vector<double> seconds = across("seconds", {"one", "two<i>"});
  ASSERT_EQ(seconds.size(), steps.size());
  EXPECT_GT(seconds.front(), 0);
  EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end()));
  expect_refused_with({"report", "one", "--by", "loss"}, "loss");
}

TEST_F(ReportPages, MistakesAreRefused) {
  expect_refused({"report", "one", "two<i>"},
                 "several runs have no folder in common for the page; name the file to write with --output");
  expect_refused({"report", "two<i>", "one", "--output", "one/metrics.jsonl", "--force"},
                 "one/metrics.jsonl: is in the run that the report is made from; give --output a name that ends in "
                 ".html");
  expect_refused({"report", "one", "./one/", "--output", "both.html"}, "./one/: is given twice; name every run once");
  expect_refused({"report", "one", "--output", "-"},
                 "-: names no file to write; give a name, or /dev/stdout for standard output");
  expect_refused({"report", "one", "--json", "--output", "/dev/stdout"},
                 "/dev/stdout: is standard output, where --json prints an object and nothing else; name a file");
  expect_refused({"report", "one", "--follow", "--output", "/dev/stdout"},
                 "/dev/stdout: cannot be written again and again; give --follow a file with --output");
  expect_refused({"report", "none", "--follow"}, "none: no run has begun there; start `longstride train` first");
  EXPECT_EQ(run({"report", "one", "--interval", "3"}).exit_code, 2);
}

TEST_F(ReportPages, FollowingAFinishedRunEndsAtOnce) {
  const CommandResult made = run({"report", "one", "--follow"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_FALSE(reloads(text("one/report.html")));
}

// Waits until it holds, for at most a minute.
bool comes_true(const std::function<bool()>& holds) {
  for (int i = 0; i < 1200 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return holds();
}

// A process that runs the command in the folder; its standard error goes to a file there.
pid_t start(const std::vector<std::string>& arguments, const std::string& directory, const std::string& messages) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(120);
  const int file = ::open((directory + "/" + messages).c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(file, STDERR_FILENO);
  ::dup2(file, STDOUT_FILENO);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  std::vector<std::string> all = {LONGSTRIDE_COMMAND};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& a : all) argv.push_back(a.data());
  argv.push_back(nullptr);
  if (::chdir(directory.c_str()) == 0) ::execv(argv[0], argv.data());
  ::_exit(127);
}

int end_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(ReportPages, ARunIsFollowedFromBeforeItsFirstCheckpointToItsLast) {
  const pid_t training = start({"train", "r.yaml", "--run", "live", "--set", "train.steps=1000000", "--set",
                                "train.evaluate_every=1000000", "--set", "train.checkpoint_every=1000000"},
                               dir.path(), "training");
  EXPECT_TRUE(comes_true([&] { return text_of(dir / "live/metrics.jsonl").find("\"step\"") != std::string::npos; }));
  const pid_t following = start({"report", "live", "--follow", "--interval", "1"}, dir.path(), "following");
  const auto points = [&] {
    const auto plots = plots_of(text("live/report.html"));
    return plots.contains("learning rate") ? plots.at("learning rate").at("series").at(0).at("points").size() : 0;
  };
  EXPECT_TRUE(comes_true([&] { return points() > 0; })) << text("following");
  EXPECT_TRUE(reloads(text("live/report.html")));
  EXPECT_TRUE(fs::is_empty(dir / "live/checkpoints"));
  const std::string first = text_of(dir / "live/report.html");
  EXPECT_TRUE(comes_true([&] { return text("live/report.html") != first && points() > 0; }));
  ::kill(following, SIGINT);
  EXPECT_EQ(end_of(following), 0) << text("following");
  EXPECT_FALSE(reloads(text("live/report.html")));
  EXPECT_GT(points(), 0U);
  ::kill(training, SIGTERM);
  EXPECT_EQ(end_of(training), 0) << text("training");
}

TEST(LinePlot, ValuesThatDifferByRoundingAreDrawn) {
  const std::string drawn = line_plot("flat", {{"x", "a", {{1, 0.3}, {2, 0.1 + 0.2}}, false}});
  EXPECT_LT(count_of("class=\"grid\"", drawn), 12U);
  EXPECT_EQ(drawn.find("nan"), std::string::npos);
}

TEST(LinePlot, NoNameEndsTheScriptThatHoldsItsPoints) {
  const std::string drawn = line_plot("t", {{"</script><b>", "a", {{1, 1}, {2, 2}}, false}});
  EXPECT_EQ(count_of("</script>", drawn), 1U);
  EXPECT_EQ(plots_of(drawn).at("t").at("series").at(0).at("name"), "</script><b>");
}

TEST(LinePlot, LongCurvesAreThinnedToMeans) {
  Series series{"x", "a", {}, false};
  for (int i = 0; i < 10000; ++i) series.points.emplace_back(i, i % 2);
  const Json points = plots_of(line_plot("t", {series})).at("t").at("series").at(0).at("points");
  EXPECT_LE(points.size(), 2000U);
  EXPECT_GE(points.size(), 1000U);
  EXPECT_NEAR(points.at(0).at(1).get<double>(), 0.5, 0.11);
}

}  // namespace
}  // namespace longstride::testing
