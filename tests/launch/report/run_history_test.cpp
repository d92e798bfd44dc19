// Lines of metrics.jsonl and evaluations.jsonl as `report` and `reproduce` read them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "framework/core/errors.h"
#include "launch/report/run_history.h"
#include "tests/support/command.h"

namespace longstride::testing {
namespace {

TEST(RunHistory, LinesThatAreNotWholeAreSkipped) {
  const TemporaryDirectory dir;
  write_text(dir / "metrics.jsonl",
             "{\"step\":10,\"loss\":1,\"bits_per_byte\":2,\"tokens_per_second\":100}\n"
             "{\"step\":20,\"loss\":1,\"bits_per_byte\":null,\"tokens_per_second\":100}\n"
             "{\"step\":20,\"split\":\"valid\",\"bits_per_byte\":3}\n"
             "{\"step\":15,\"mean_loss\":\"x\",\"bits_per_byte\":null,\"host_peak_bytes\":[]}\n"
             "{\"step\":20,\"loss\":1,\"bits_per_byte\":1.5,\"tokens_per_second\":50}\n{\"step\":30,\"lo");
  const RunHistory history = read_history(dir.path());
  ASSERT_EQ(history.steps.size(), 2u);
  ASSERT_EQ(history.evaluations.size(), 1u);
  const auto before = [](std::int64_t step) { return 1000 * static_cast<double>(step); };
  EXPECT_DOUBLE_EQ(history.seconds(before), 10 * 1000 / 100.0 + 10 * 1000 / 50.0);
  EXPECT_DOUBLE_EQ(*history.seconds_per_step(before), 20);
  EXPECT_FALSE(read_history(dir / "nothing").seconds_per_step(before).has_value());
}

TEST(RunHistory, StepsAndSizesMustBeWholeNumbers) {
  const TemporaryDirectory dir;
  const std::string first = "{\"step\":10,\"bits_per_byte\":2}\n",
                    most = " must be a whole number from 0 to 9,223,372,";
  for (const std::string value : {"1e300", "-1", "-1e300", "1.5", "9223372036854775808", "18446744073709551615"})
    for (const auto& [file, key] : {std::pair{"metrics.jsonl", "step"},
                                    {"metrics.jsonl", "host_peak_bytes"},
                                    {"evaluations.jsonl", "max_windows"},
                                    {"evaluations.jsonl", "memory"}}) {
      const TemporaryDirectory run;
      write_text(run / file, first + fmt::format("{{\"bits_per_byte\":2,\"{}\":{}}}\n", key, value));
      try {
        if (file == std::string("metrics.jsonl"))
          read_history(run.path());
        else
          kept_evaluations(run.path());
        ADD_FAILURE() << file << " " << key << " " << value;
      } catch (const UserError& error) {
        const std::string message = error.what();
        EXPECT_EQ(message.find(run / file + std::string(":2: '") + key + "' is "), 0u) << message;
        EXPECT_NE(message.find(most), std::string::npos) << message;
      }
    }
  write_text(dir / "metrics.jsonl", first +
                                        "{\"step\":9223372036854775807,\"bits_per_byte\":2}\n"
                                        "{\"step\":20.0,\"bits_per_byte\":2}\n");
  const RunHistory history = read_history(dir.path());
  ASSERT_EQ(history.steps.size(), 3u);
  EXPECT_EQ(history.steps[1].step, INT64_MAX);
  EXPECT_EQ(history.steps[2].step, 20);
}

TEST(RunHistory, TakesTheMeanLossWhereALineHasIt) {
  const TemporaryDirectory dir;
  write_text(dir / "metrics.jsonl",
             "{\"step\":10,\"bits_per_byte\":2}\n"
             "{\"step\":20,\"bits_per_byte\":2,\"mean_loss\":0.6931471805599453,\"host_peak_bytes\":4096}\n"
             "{\"step\":30,\"bits_per_byte\":2,\"mean_loss\":null,\"host_peak_bytes\":1024}\n");
  const RunHistory history = read_history(dir.path());
  ASSERT_EQ(history.steps.size(), 3u);
  EXPECT_EQ(history.steps[0].figure, 2);
  EXPECT_NEAR(history.steps[1].figure, 1, 1e-12);
  EXPECT_EQ(history.steps[2].figure, 2);
  EXPECT_EQ(history.host_peak_bytes, 4096);
}

}  // namespace
}  // namespace longstride::testing
