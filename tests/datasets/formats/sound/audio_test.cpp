#include "datasets/formats/audio.h"

#include <sndfile.h>

#include <cmath>
#include <numbers>

#include "datasets/formats/mu_law.h"
#include "datasets/formats/wav.h"
#include "datasets/prepare/prepare.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

std::vector<float> tone(double frequency, double rate, std::size_t count, double peak = 0.5) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(peak * std::sin(2 * std::numbers::pi * frequency * static_cast<double>(i) / rate));
  return out;
}

void write_sound(const std::string& path, int format, int rate, int channels, const std::vector<float>& frames) {
  SF_INFO info = {};
  info.format = format;
  info.samplerate = rate;
  info.channels = channels;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  ASSERT_NE(file, nullptr) << sf_strerror(nullptr);
  sf_writef_float(file, frames.data(), static_cast<sf_count_t>(frames.size()) / channels);
  sf_close(file);
}

constexpr int flac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16, ogg = SF_FORMAT_OGG | SF_FORMAT_VORBIS,
              wav = SF_FORMAT_WAV | SF_FORMAT_PCM_16, aiff = SF_FORMAT_AIFF | SF_FORMAT_PCM_16;

std::vector<float> read_all(const std::string& path) {
  const auto file = open_audio(path);
  std::vector<float> out, piece(777);
  for (std::int64_t got; (got = file->read(piece.data(), 777)) > 0;)
    out.insert(out.end(), piece.begin(), piece.begin() + got);
  return out;
}

double root_mean_square(const std::vector<float>& x, std::size_t from, std::size_t to) {
  double sum = 0;
  for (std::size_t i = from; i < to; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum / static_cast<double>(to - from));
}

TEST(Audio, AveragesChannels) {
  const Folder folder;
  std::vector<float> frames;
  for (int i = 0; i < 3000; ++i) frames.insert(frames.end(), {0.5f, -0.25f, 0.125f});
  write_sound(folder / "a.flac", flac, 8000, 3, frames);
  const auto mono = read_all(folder / "a.flac");
  ASSERT_EQ(mono.size(), 3000u);
  EXPECT_NEAR(mono[1234], 0.125, 1e-6);
}

// A tone below both limits keeps its amplitude and phase; one above the new limit disappears.
TEST(Audio, ResamplesWithinItsBandOnly) {
  for (const double rate : {8000.0, 16000.0, 22050.0, 44100.0, 48000.0}) {
    const auto resample = [&](double frequency) {
      const auto in = tone(frequency, rate, static_cast<std::size_t>(rate));
      const auto resampler = make_resampler(static_cast<std::int64_t>(rate), 12000);
      std::vector<float> all, piece;
      for (std::size_t at = 0; at < in.size(); at += 1000) {
        resampler->process(in.data() + at, static_cast<std::int64_t>(std::min<std::size_t>(1000, in.size() - at)),
                           piece);
        all.insert(all.end(), piece.begin(), piece.end());
      }
      resampler->finish(piece);
      all.insert(all.end(), piece.begin(), piece.end());
      return all;
    };
    const auto kept = resample(1000);
    ASSERT_EQ(kept.size(), 12000u) << rate;
    const auto ideal = tone(1000, 12000, 12000);
    double worst = 0;
    for (std::size_t i = 1000; i < 11000; ++i)
      worst = std::max(worst, std::abs(static_cast<double>(kept[i] - ideal[i])));
    EXPECT_LT(worst, 1e-4) << "from " << rate;
    if (rate > 14500) {
      EXPECT_LT(root_mean_square(resample(7000), 1000, 11000), 1e-4) << "from " << rate;
    }
  }
}

TEST(PrepareAudio, KeepsFilesWholeAndInOneSplitEach) {
  const Folder folder;
  for (int i = 0; i < 10; ++i)
    write_sound(folder / fmt::format("s{}.flac", i), flac, 12000, 1,
                tone(200 + 100 * i, 12000, static_cast<std::size_t>(3000 + 100 * i)));
  PrepareAudioConfig config;
  config.inputs = {folder.path()};
  config.split = "0.6,0.2,0.2";
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().rate, 12000);
  EXPECT_EQ(dataset->info().encoding, "mu-law 255");
  EXPECT_EQ(dataset->sources().size(), 10u);
  std::vector<bool> found(10, false);
  for (const char* name : split_names) {
    const auto files = dataset->split(name);
    EXPECT_GE(files->sequences(), 1) << name;
    for (std::int64_t f = 0; f < files->sequences(); ++f) {
      const auto i = static_cast<std::size_t>((files->length(f) - 3000) / 100);
      EXPECT_FALSE(found[i]) << "file " << i << " occurs twice";
      found[i] = true;
      Bytes levels(static_cast<std::size_t>(files->length(f)));
      files->read(f, 0, files->length(f), levels.data());
      const auto whole = tone(200 + 100 * static_cast<double>(i), 12000, levels.size());
      double noise = 0, signal = 0;
      for (std::size_t s = 0; s < levels.size(); ++s) {
        const double error = mu_law_decode(levels[s]) - whole[s];
        noise += error * error, signal += static_cast<double>(whole[s]) * whole[s];
      }
      EXPECT_GT(10 * std::log10(signal / noise), 36) << "file " << i;
    }
    EXPECT_EQ(dataset->split(name, true)->sequences(), 1);
  }
  EXPECT_EQ(found, std::vector<bool>(10, true));
}

TEST(PrepareAudio, DividesTheDurationAsRequested) {
  const Folder folder;
  PrepareAudioConfig config;
  for (int i = 0; i < 20; ++i) write_wav(folder / fmt::format("{:02}.wav", i), tone(40 + i, 1000, 100), 1000);
  config.inputs = {folder.path()};
  config.rate = 1000;
  config.split = "0.5,0.25,0.25";
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->split("train")->sequences(), 10);
  EXPECT_EQ(dataset->split("valid")->sequences(), 5);
  EXPECT_EQ(dataset->split("test")->sequences(), 5);
}

// Every file holds its own constant level, so a window with two levels crosses files.
TEST(PrepareAudio, TrainsOnWindowsWithinFilesUnlessAsked) {
  const Folder folder;
  for (int i = 0; i < 6; ++i)
    write_wav(folder / fmt::format("s{}.wav", i),
              std::vector<float>(static_cast<std::size_t>(1000 + 37 * i), 0.1f * static_cast<float>(i)), 12000);
  PrepareAudioConfig config;
  config.inputs = {folder.path()};
  config.split = "1.0,0";
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  const auto mixed_rows = [&](bool cross_files) {
    const auto source = open_training_data(*dataset, {DataKind::audio, folder / "x.h5", 100, cross_files}, 1, 1);
    Bytes rows(static_cast<std::size_t>(source->epoch_rows()) * 100);
    std::int64_t mixed = 0;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      source->read(epoch, source->epoch_rows(), 0, {Tensor(rows.data(), Dtype::u8, {source->epoch_rows(), 100})});
      for (auto row = rows.begin(); row != rows.end(); row += 100)
        mixed += std::all_of(row, row + 100, [&](std::uint8_t level) { return level == *row; }) ? 0 : 1;
    }
    return mixed;
  };
  EXPECT_EQ(mixed_rows(false), 0);
  EXPECT_GT(mixed_rows(true), 0);
}

TEST(PrepareAudio, TakesTheSplitsGiven) {
  const Folder folder;
  write_wav(folder / "a.wav", std::vector<float>(500, 0.1f), 12000);
  write_wav(folder / "b.wav", std::vector<float>(400, 0.2f), 12000);
  write_wav(folder / "c.wav", std::vector<float>(300, 0.3f), 12000);
  PrepareAudioConfig config;
  config.inputs = {folder / "a.wav"};
  config.valid_inputs = {folder / "b.wav"};
  config.test_inputs = {folder / "c.wav"};
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->split("train")->length(0), 500);
  EXPECT_EQ(dataset->split("valid")->length(0), 400);
  EXPECT_EQ(dataset->split("test")->length(0), 300);
}

// Whole numbers stored as floats would become a square wave without a word.
TEST(PrepareAudio, SaysWhichSamplesAreClipped) {
  const Folder folder;
  constexpr int floats = SF_FORMAT_WAV | SF_FORMAT_FLOAT;
  write_sound(folder / "p/full.wav", floats, 8000, 1, {-1, 1, 0});
  PrepareAudioConfig config;
  config.inputs = {folder / "p"};
  config.rate = 8000;
  config.split = "1.0,0";
  std::string notes;
  PrepareOutput output = to(folder / "x.h5", true);
  output.note = [&](const std::string& note) { notes += note + "\n"; };
  prepare_audio(config, output);
  EXPECT_EQ(notes, "");
  write_sound(folder / "p/a.wav", floats, 8000, 1, {0, -1.25f, 0.5f});
  write_sound(folder / "p/loud.wav", floats, 8000, 1, {0, 3000, 0});
  prepare_audio(config, output);
  EXPECT_EQ(notes, folder /
                       "p/loud.wav: reaches 3000 times full scale, which is clipped, as in 2 files in all"
                       "; if they hold whole numbers as floats, divide them by full scale first\n");
}

TEST(PrepareAudio, ReportsTheSearchOfItsInputs) {
  const Folder folder;
  write_sound(folder / "p/a.flac", flac, 8000, 1, tone(440, 8000, 3000));
  PrepareAudioConfig config;
  config.inputs = {folder / "p"};
  PrepareOutput output = to(folder / "x.h5");
  output.progress = [](std::int64_t, std::int64_t total) {
    if (total == 0) throw user_error("stopped before the whole is known");
  };
  expect_user_error([&] { prepare_audio(config, output); }, "stopped before the whole is known");
}

TEST(PrepareAudio, DecodesBackToSound) {
  const Folder folder;
  const auto sound = tone(440, 12000, 6000);
  write_wav(folder / "a.wav", sound, 12000);
  PrepareAudioConfig config;
  config.inputs = {folder / "a.wav"};
  config.split = "1.0,0.0";
  prepare_audio(config, to(folder / "x.h5"));
  decode_audio({folder / "x.h5", "train", 0}, to(folder / "y.wav"));
  const auto heard = read_all(folder / "y.wav");
  ASSERT_EQ(heard.size(), sound.size());
  for (std::size_t i = 0; i < heard.size(); ++i) ASSERT_NEAR(heard[i], sound[i], 0.012);
  expect_user_error([&] { decode_audio({folder / "x.h5", "train", 1}, to(folder / "z.wav")); }, "has 1 file in");
  expect_user_error([&] { decode_audio({folder / "x.h5", "test", 0}, to(folder / "z.wav")); }, "has 0 files in");
  expect_user_error([&] { decode_audio({folder / "x.h5", "tset", 0}, to(folder / "z.wav")); }, "choose train");
  const Outcome other = call(fmt::format("prepare audio --decode {0}/x.h5 --output {0}/z.mp3", folder.path()));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.text.find("z.mp3: --decode writes a WAV file; give --output a name that ends in .wav"),
            std::string::npos)
      << other.text;
  EXPECT_FALSE(std::filesystem::exists(folder / "z.mp3"));
  EXPECT_EQ(call(fmt::format("prepare audio --decode {0}/x.h5 --output {0}/Z.WAV", folder.path())).code, 0);
}

// Every format cut at every sixteenth: an error that names the file, and nothing left behind.
TEST(PrepareAudio, RefusesEveryTruncation) {
  const Folder folder;
  const auto noise = random_bytes(20000, 9);
  std::vector<float> frames(noise.size());
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = static_cast<float>(noise[i]) / 256.0f - 0.5f;
  for (const auto& [extension, format] : {std::pair{"wav", wav}, {"flac", flac}, {"ogg", ogg}, {"aiff", aiff}}) {
    const std::string whole = folder / fmt::format("whole.{}", extension),
                      cut = folder / fmt::format("cut.{}", extension);
    write_sound(whole, format, 16000, 1, frames);
    const Bytes bytes = get_file(whole);
    for (std::size_t part = 0; part < 16; ++part) {
      put_file(cut, cut_short(bytes, part));
      PrepareAudioConfig config;
      config.inputs = {cut};
      SCOPED_TRACE(fmt::format("{} cut at sixteenth {}", extension, part));
      expect_user_error([&] { prepare_audio(config, to(folder / "x.h5")); }, cut);
    }
    EXPECT_EQ(read_all(whole).size(), frames.size()) << extension;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(PrepareAudio, RefusesWhatIsNotSound) {
  const Folder folder;
  write_wav(folder / "a.wav", std::vector<float>(500, 0.1f), 12000);
  write_wav(folder / "silent.wav", {}, 12000);
  put_file(folder / "noise.flac", random_bytes(4000, 1));
  write_sound(folder / "nan.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 12000, 1, {0.5f, NAN});
  put_file(folder / "empty/readme.txt", {1});
  const auto attempt = [&](const std::function<void(PrepareAudioConfig&)>& change) {
    return [&folder, change] {
      PrepareAudioConfig config;
      config.inputs = {folder / "a.wav"};
      change(config);
      prepare_audio(config, to(folder / "x.h5"));
    };
  };
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "noise.flac"}; }), "cannot be read as sound");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "silent.wav"}; }), "is not sound");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "nan.wav"}; }), "sample 1 is not a finite number");
  write_wav(folder / "short.wav", {0.5f}, 48000);
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "short.wav"}; }),
                    "has 1 sample at 48,000 per second, which is none at --rate 12,000; leave it out");
  for (const int other : {999, 768001}) {
    write_wav(folder / "odd.wav", std::vector<float>(500, 0.1f), other);
    expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "odd.wav"}; }),
                      " samples per second, but must have 1,000 to 768,000; repair");
  }
  put_file(folder / "music.zip", {'P', 'K', 3, 4, 0, 0});
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "music.zip"}; }), "is packed (zip); unpack it to a");
  expect_user_error(attempt([&](auto& c) { c.inputs = {"-"}; }), "only `prepare bytes` reads standard input");
  expect_user_error(attempt([&](auto& c) { c.split = "", c.valid_inputs = {"-"}; }),
                    "only `prepare bytes` reads standard");
  std::filesystem::create_directories(folder / "linked");
  write_wav(folder / "linked/b.wav", std::vector<float>(500, 0.1f), 12000);
  std::filesystem::create_symlink("b.wav", folder / "linked/c.wav");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "linked"}; }),
                    "linked/c.wav: is given twice (also as " + (folder / "linked/b.wav") + "); remove the link");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "empty"}; }), "holds no sound files");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "absent"}; }), "absent");
  expect_user_error(attempt([&](auto& c) { c.inputs = {folder / "a.wav", folder / "a.wav"}; }), "given twice");
  expect_user_error(attempt([&](auto& c) { c.rate = 0; }), "--rate is 0");
  expect_user_error(attempt([&](auto& c) { c.split = "400,100"; }), "fractions of the duration");
  expect_user_error(attempt([&](auto& c) { c.split = "0.5,0.5", c.test_inputs = {folder / "a.wav"}; }),
                    "--valid-input");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

// Real music: the length follows the rate, and the loudness survives.
TEST(PrepareAudio, TakesRealMusic) {
  const std::string path = shared_file("audio/brahms_hungarian_dance_5_usarmystrings_22k.flac");
  if (path.empty()) GTEST_SKIP() << "no shared data";
  const Folder folder;
  PrepareAudioConfig config;
  config.inputs = {path};
  config.split = "1.0,0.0";
  prepare_audio(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  const Bytes levels = whole_split(*dataset, "train");
  const auto original = read_all(path);
  ASSERT_EQ(levels.size(),
            static_cast<std::size_t>(std::llround(static_cast<double>(original.size()) * 12000 / 22050)));
  const auto heard = mu_law_decode(levels);
  const double before = root_mean_square(original, 0, original.size() / 2),
               after = root_mean_square(heard, 0, heard.size() / 2);
  EXPECT_NEAR(20 * std::log10(after / before), 0, 0.5);
  EXPECT_EQ(dataset->sources()[0].sha256, "e0ca50d335dc7f64570a5291d693f091aa09a2025082a0d918904a820200d9c8");
}

}  // namespace
}  // namespace longstride
