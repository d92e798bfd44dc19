#include "framework/train/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/core/files/files.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

using nlohmann::json;
using testing::TemporaryDirectory;

StepMetrics step_metrics(std::int64_t step) {
  return {step, {{"loss", 2.5}, {"bits_per_byte", 3.6}}, 1e-4, 0.75, 10234.5, 2.75, step * 64, 4096, {}, {}, {}, {}};
}

std::vector<json> lines_of(const std::string& run) {
  std::ifstream in(run + "/metrics.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::int64_t> steps_of(const std::string& run) {
  std::vector<std::int64_t> steps;
  for (const json& line : lines_of(run)) steps.push_back(line["step"].get<std::int64_t>());
  return steps;
}

// One process of a run: it resumes at a step and takes some more.
void write_steps(const std::string& run, std::int64_t resumed_step, std::initializer_list<std::int64_t> steps) {
  MetricsWriter writer(run, resumed_step);
  for (std::int64_t step : steps) writer.write(step_metrics(step));
}

TEST(Metrics, LinesCarryTheDocumentedKeys) {
  const TemporaryDirectory run;
  MetricsWriter writer(run.path(), 0);
  writer.write(step_metrics(10));
  writer.write(EvaluationMetrics{10, "valid", {{"loss", 2.25}, {"bits_per_byte", 3.25}}, 4096, 1.5});
  auto lines = lines_of(run.path());  // flushed already: the writer is still open
  ASSERT_EQ(lines.size(), 2u);
  for (json& line : lines) {
    std::string time = line.at("time").get<std::string>();
    std::replace_if(
        time.begin(), time.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
    EXPECT_EQ(time, "0000-00-00T00:00:00.000Z") << line;
    line.erase("time");
  }
  EXPECT_EQ(lines[0], json({{"step", 10},
                            {"loss", 2.5},
                            {"bits_per_byte", 3.6},
                            {"lr", 1e-4},
                            {"grad_norm", 0.75},
                            {"tokens_per_second", 10234.5},
                            {"mean_loss", 2.75},
                            {"tokens", 640},
                            {"host_peak_bytes", 4096}}));
  EXPECT_EQ(lines[1], json({{"step", 10},
                            {"split", "valid"},
                            {"loss", 2.25},
                            {"bits_per_byte", 3.25},
                            {"bytes", 4096},
                            {"seconds", 1.5}}));
}

TEST(Metrics, LinesOfAGpuNameTheDeviceAndInFp16TheLossScale) {
  const TemporaryDirectory run;
  MetricsWriter writer(run.path(), 0);
  writer.write(DeviceMetrics{0, "NVIDIA H200", "fp16", 4096});
  StepMetrics metrics = step_metrics(10);
  metrics.device_peak_bytes = 3072;
  metrics.loss_scale = 65536;
  metrics.skipped = 2;
  writer.write(metrics);
  const auto lines = lines_of(run.path());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], json({{"step", 0}, {"device", "NVIDIA H200"}, {"precision", "fp16"}, {"planned_bytes", 4096}}));
  EXPECT_EQ(lines[1]["device_peak_bytes"], 3072);
  EXPECT_EQ(lines[1]["loss_scale"], 65536);
  EXPECT_EQ(lines[1]["skipped"], 2);
}

TEST(Metrics, AuxiliaryLossesHaveTheirNames) {
  const TemporaryDirectory run;
  StepMetrics metrics = step_metrics(10);
  MetricsWriter writer(run.path(), 0);
  writer.write(metrics);
  metrics.auxiliary = {{"span", 0.25}, {"reconstruction", 1.5}};
  writer.write(metrics);
  const auto lines = lines_of(run.path());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_FALSE(lines[0].contains("auxiliary"));
  EXPECT_EQ(lines[1]["auxiliary"], json({{"span", 0.25}, {"reconstruction", 1.5}}));
  EXPECT_EQ(lines[1]["loss"], 2.5);
}

TEST(Metrics, ThePeakOfMemoryGrowsWithWhatIsTouched) {
  const std::optional<std::int64_t> before = peak_host_bytes();
  ASSERT_TRUE(before.has_value());
  // More than the peak of the tests before in the same process.
  const std::string touched(static_cast<std::size_t>(*before) + (std::size_t{256} << 20), 'x');
  EXPECT_GE(*peak_host_bytes(), static_cast<std::int64_t>(touched.size()));
}

TEST(Metrics, NumbersThatAreNotFiniteAreNull) {
  const TemporaryDirectory run;
  StepMetrics metrics = step_metrics(1);
  metrics.figures.front().second = std::nan("");
  metrics.grad_norm = HUGE_VAL;
  MetricsWriter(run.path(), 0).write(metrics);
  EXPECT_TRUE(lines_of(run.path()).at(0)["loss"].is_null());
  EXPECT_TRUE(lines_of(run.path()).at(0)["grad_norm"].is_null());
}

TEST(Metrics, ResumingDropsTheStepsThatWillBeTakenAgain) {
  const TemporaryDirectory run;
  write_steps(run.path(), 0, {10, 20, 30, 40});
  write_steps(run.path(), 20, {});
  EXPECT_EQ(steps_of(run.path()), (std::vector<std::int64_t>{10, 20}));
  write_steps(run.path(), 20, {30});
  EXPECT_EQ(steps_of(run.path()), (std::vector<std::int64_t>{10, 20, 30}));
}

TEST(Metrics, ANewRunStartsWithNoLines) {
  const TemporaryDirectory run;
  write_steps(run.path(), 0, {10, 20});
  write_steps(run.path(), 0, {});
  EXPECT_TRUE(steps_of(run.path()).empty());
}

TEST(Metrics, ALineCutShortByAKillIsDropped) {
  const TemporaryDirectory run;
  write_steps(run.path(), 0, {10});
  std::ofstream(run / "metrics.jsonl", std::ios::app) << "{\"step\":20,\"lo";
  write_steps(run.path(), 30, {40});
  EXPECT_EQ(steps_of(run.path()), (std::vector<std::int64_t>{10, 40}));
}

TEST(Metrics, AMissingDirectoryIsAUserError) {
  const TemporaryDirectory run;
  EXPECT_NE(testing::user_error_of([&] { MetricsWriter(run / "none", 0); }), "");
}

TEST(Crc32c, GivesThePublishedAnswers) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
}

// Parses the TFRecords as TensorBoard does.
std::vector<std::string> events_in(const std::string& run) {
  const auto masked = [](const char* bytes, std::size_t count) {
    const std::uint32_t crc = crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
  };
  std::string content;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      content = read_file(entry.path().string());
  std::vector<std::string> events;
  for (std::size_t at = 0; at < content.size();) {
    std::uint64_t length = 0;
    std::uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, &content.at(at), 8);
    std::memcpy(&length_crc, &content.at(at + 8), 4);
    EXPECT_EQ(length_crc, masked(content.data() + at, 8));
    events.push_back(content.substr(at + 12, length));
    std::memcpy(&data_crc, &content.at(at + 12 + length), 4);
    EXPECT_EQ(data_crc, masked(events.back().data(), length));
    at += 16 + length;
  }
  return events;
}

TEST(EventFile, HoldsTheProtocolBuffersOfTensorBoard) {
  const TemporaryDirectory run;
  EventFile(run.path(), 21).write(300, {{"train/loss", 1.5}});
  const std::vector<std::string> events = events_in(run.path());
  ASSERT_EQ(events.size(), 3u);
  // Every event: tag 0x09 and the wall time in 8 bytes; then tag 0x10 and the step.
  for (const std::string& event : events) EXPECT_EQ(event[0], '\x09');
  EXPECT_EQ(events[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  EXPECT_EQ(events[1].substr(9), std::string("\x10\x15\x3a\x02\x08\x01", 6));
  EXPECT_EQ(events[2].substr(9), std::string("\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a", 9) + "train/loss" +
                                     std::string("\x15\x00\x00\xc0\x3f", 5));
}

TEST(EventFile, HoldsTextsPicturesAndSoundsOfTensorBoard) {
  const TemporaryDirectory run;
  {
    EventFile file(run.path(), 1);
    file.write_media(3, Media{"t", "a\nb\xff\x1b", Media::Form::text});
    file.write_media(3, Media{"p", "PNG", Media::Form::png, 2, 300, 3});
    file.write_media(3, Media{"w", "RIFF", Media::Form::wav, 0, 0, 0, 12000, 5});
  }
  const std::vector<std::string> events = events_in(run.path());
  ASSERT_EQ(events.size(), 5u);
  const auto value = [&](std::size_t index) {  // Summary.Value after its tag of one character
    const std::string& event = events[index];
    return event.substr(event.find("\x0a\x01") + 3);
  };
  const std::string code = "    a\n    b\xEF\xBF\xBD\xEF\xBF\xBD";  // lines of code in Markdown
  EXPECT_EQ(value(2),
            std::string("\x42\x1b\x08\x07\x12\x04\x12\x02\x08\x01\x42\x11") + code + "\x4a\x08\x0a\x06\x0a\x04text");
  EXPECT_EQ(value(3), std::string("\x22\x0c\x08\x02\x10\xac\x02\x18\x03\x22\x03PNG"));
  EXPECT_EQ(value(4),
            std::string("\x32\x1a\x0d\x00\x80\x3b\x46\x10\x01\x18\x05\x22\x04RIFF\x2a\x09", 19) + "audio/wav");
}

TEST(EventFile, ReadsInTensorBoardItself) {
  const std::string python = "python3";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "the Python package tensorboard is not installed";
  const TemporaryDirectory run;
  write_steps(run.path(), 0, {10, 20, 30});
  const TemporaryDirectory drawn;
  {
    EventFile file(drawn.path(), 1);
    file.write_media(4, Media{"samples/000", "x <b>", Media::Form::text});
    file.write_media(4, Media{"samples/001", "PNG", Media::Form::png, 2, 300, 3});
    file.write_media(4, Media{"samples/002", "RIFF", Media::Form::wav, 0, 0, 0, 12000, 5});
  }
  const std::string script =
      "import sys\n"
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
      "a = EventAccumulator(sys.argv[1]); a.Reload()\n"
      "tags = {'train/loss', 'train/bits_per_byte', 'train/mean_loss', 'train/lr', 'train/grad_norm', "
      "'train/tokens_per_second', 'train/tokens'}\n"
      "assert set(a.Tags()['scalars']) == tags, a.Tags()\n"
      "assert [(e.step, e.value) for e in a.Scalars('train/loss')] == [(10, 2.5), (20, 2.5), (30, 2.5)]\n"
      "a = EventAccumulator(sys.argv[2]); a.Reload()\n"
      "assert a.Tags()['images'] == ['samples/001'] and a.Tags()['audio'] == ['samples/002'], a.Tags()\n"
      "assert a.Tensors('samples/000')[0].tensor_proto.string_val == [b'    x <b>']\n"
      "assert a.SummaryMetadata('samples/000').plugin_data.plugin_name == 'text'\n"
      "i = a.Images('samples/001')[0]; assert (i.height, i.width, i.encoded_image_string) == (2, 300, b'PNG')\n"
      "s = a.Audio('samples/002')[0]; assert (s.sample_rate, s.length_frames) == (12000.0, 5), s\n";
  write_file_atomically(run / "read.py", script);
  EXPECT_EQ(std::system((python + " " + (run / "read.py") + " " + run.path() + " " + drawn.path()).c_str()), 0);
}

}  // namespace
}  // namespace longstride
