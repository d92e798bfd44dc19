// How recordings are divided: copies together, and long ones in time if asked.
#include "datasets/formats/wav.h"
#include "tests/datasets/formats/sound/sounds.h"
#include "tests/datasets/support.h"

namespace longstride::cut_test {
namespace {

constexpr std::int64_t rate = 8000;

// Rises, so that a piece shows where it was.
std::vector<float> ramp(std::size_t seconds, float from) {
  std::vector<float> out(seconds * rate);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = from + 0.2F * static_cast<float>(i) / static_cast<float>(out.size());
  return out;
}

PrepareAudioConfig config_of(std::vector<std::string> inputs, const char* split = "") {
  PrepareAudioConfig config;
  config.inputs = std::move(inputs);
  config.split = split;
  config.rate = rate;
  return config;
}

TEST(CutSound, DividesOneRecordingInTime) {
  const Folder folder;
  write_wav(folder / "a.wav", ramp(20, 0.1F), rate);
  PrepareAudioConfig config = config_of({folder / "a.wav"});
  prepare_audio(config, to(folder / "whole.h5"));
  config.cut = 2;
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  Bytes all;
  for (const auto& [name, seconds] : {std::pair{"train", 16}, {"valid", 2}, {"test", 2}}) {
    const Bytes part = whole_split(*dataset, name);
    EXPECT_EQ(part.size(), static_cast<std::size_t>(seconds * rate)) << name;
    EXPECT_EQ(dataset->split(name)->sequences(), 1) << name;
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(all == whole_split(*Dataset::open(folder / "whole.h5"), "train"));
  EXPECT_NE(dataset->info().split.find("cut at multiples of 2 s"), std::string::npos) << dataset->info().split;
}

TEST(CutSound, LeavesAllButTwoRecordingsWhole) {
  const Folder folder;
  std::vector<std::string> inputs;
  for (int i = 0; i < 6; ++i) {
    inputs.push_back(folder / fmt::format("{}.wav", i));
    write_wav(inputs.back(), ramp(5, 0.1F * static_cast<float>(i)), rate);
  }
  PrepareAudioConfig config = config_of(inputs, "0.5,0.25,0.25");
  config.cut = 0.5;
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->size("train").bytes, 15 * rate);
  EXPECT_EQ(dataset->size("valid").bytes, 15 * rate / 2);
  std::int64_t sequences = 0;
  for (const char* name : split_names) sequences += dataset->split(name)->sequences();
  EXPECT_LE(sequences, 8);
}

TEST(CutSound, RefusesWhatLeavesASplitEmptyAndGivenSplits) {
  const Folder folder;
  write_wav(folder / "a.wav", ramp(5, 0.1F), rate);
  write_wav(folder / "b.wav", ramp(5, 0.2F), rate);
  PrepareAudioConfig config = config_of({folder / "a.wav"});
  config.cut = 4;
  expect_user_error([&] { prepare_audio(config, to(folder / "x.h5")); }, "--cut 4 leaves none");
  config.valid_inputs = {folder / "b.wav"};
  expect_user_error([&] { prepare_audio(config, to(folder / "x.h5")); }, "leave --cut out");
}

TEST(WholeSound, SaysWhenItCannotBeDividedAsAsked) {
  const Folder folder;
  std::vector<std::string> inputs, notes;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(folder / fmt::format("{}.wav", i));
    write_wav(inputs.back(), ramp(2, 0.1F * static_cast<float>(i)), rate);
  }
  PrepareOutput output = to(folder / "x.h5");
  output.note = [&](const std::string& sentence) { notes.push_back(sentence); };
  prepare_audio(config_of(inputs), output);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("have 33%, 33% and 33% of the duration"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("--cut SECONDS"), std::string::npos) << notes[0];
}

TEST(CopiesOfSound, GoWhereTheFirstGoes) {
  const Folder folder;
  std::vector<std::string> inputs, notes;
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(folder / fmt::format("{}.wav", i));
    write_wav(inputs.back(), ramp(1, 0.25F * static_cast<float>(i / 2)), rate);  // two of each
  }
  for (const double cut : {0.0, 0.25}) {
    PrepareAudioConfig config = config_of(inputs, "0.5,0.25,0.25");
    config.cut = cut;
    PrepareOutput output = to(folder / "x.h5", true);
    output.note = [&](const std::string& sentence) { notes.push_back(sentence); };
    prepare_audio(config, output);
    const auto dataset = Dataset::open(folder / "x.h5");
    const Bytes train = whole_split(*dataset, "train");
    EXPECT_EQ(train.size(), 4u * rate);
    for (const char* name : {"valid", "test"}) {
      const Bytes other = whole_split(*dataset, name);
      EXPECT_EQ(other.size(), 2u * rate);
      EXPECT_EQ(std::search(train.begin(), train.end(), other.begin(), other.begin() + rate), train.end());
      EXPECT_TRUE(std::equal(other.begin(), other.begin() + rate, other.begin() + rate));
    }
    ASSERT_FALSE(notes.empty());
    EXPECT_NE(notes[0].find("copies: 4 of 8 sound files"), std::string::npos) << notes[0];
    config.duplicates = Duplicates::drop;
    prepare_audio(config, to(folder / "x.h5", true));
    EXPECT_EQ(Dataset::open(folder / "x.h5")->size("train").bytes, 2 * rate);
    config.duplicates = Duplicates::refuse;
    expect_user_error([&] { prepare_audio(config, to(folder / "x.h5", true)); }, "is a copy of");
  }
}

}  // namespace
}  // namespace longstride::cut_test
