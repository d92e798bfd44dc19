// Sound is recognised by its content: every format that libsndfile reads, under any name.
#include <sndfile.h>

#include <algorithm>
#include <cmath>

#include "datasets/formats/png.h"
#include "datasets/formats/wav.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/sound/sounds.h"
#include "tests/datasets/support.h"

namespace longstride::sound_formats_test {
namespace {

struct Format {
  const char* name;
  int format;
};
constexpr Format formats[] = {{"wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16},   {"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16},
                              {"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16}, {"ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS},
                              {"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS},    {"mp3", mpeg | layer_3},
                              {"au", SF_FORMAT_AU | SF_FORMAT_PCM_16},     {"caf", SF_FORMAT_CAF | SF_FORMAT_PCM_16},
                              {"w64", SF_FORMAT_W64 | SF_FORMAT_PCM_16}};

// The root mean square of the difference.
double error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum / static_cast<double>(std::min(a.size(), b.size())));
}

TEST(SoundFormats, AreReadUnderAnyName) {
  const Folder folder;
  int read = 0;
  for (const auto& [name, format] : formats) {
    const Bytes file = encoded_sound(format);
    if (file.empty()) continue;
    ++read;
    for (const char* path : {"sound", "sound.txt", "sound.wav"}) {
      put_file(folder / path, file);
      EXPECT_TRUE(begins_like_sound(folder / path)) << name;
      const std::vector<float> heard = read_sound(folder / path);
      EXPECT_EQ(heard.size(), sound_length) << name;
      EXPECT_LT(error(heard, sound_tone()), 0.05) << name;
    }
  }
  EXPECT_GE(read, 7);
}

// An MP3 file as encoders write it to a pipe: without the first frame, which states the length. libsndfile's guess is
// a third of it.
TEST(SoundFormats, ReadsAllOfAnMp3FileThatDoesNotStateItsLength) {
  const Bytes whole = encoded_sound(mpeg | layer_3);
  if (whole.empty()) GTEST_SKIP() << "this libsndfile does not write MP3";
  const Folder folder;
  const auto next = std::search(whole.begin() + 4, whole.end(), whole.begin(), whole.begin() + 2);
  put_file(folder / "a.mp3", Bytes(next, whole.end()));
  const std::size_t heard = read_sound(folder / "a.mp3").size();
  EXPECT_GE(heard, sound_length);
  EXPECT_LT(heard, sound_length + 4 * 1152);  // with the encoder's silence before and after
}

TEST(SoundFormats, RefusesAnMp3FileThatIsCutShort) {
  const Bytes whole = encoded_sound(mpeg | layer_3);
  if (whole.empty()) GTEST_SKIP() << "this libsndfile does not write MP3";
  const Folder folder;
  for (std::size_t part = 0; part < 16; ++part) {
    put_file(folder / "a.mp3", cut_short(whole, part));
    SCOPED_TRACE(part);
    expect_user_error([&] { read_sound(folder / "a.mp3"); }, "a.mp3: ");
  }
}

// Text is no sound under any name, not even under those of formats without a header.
TEST(SoundFormats, DoesNotTakeTextForSound) {
  const Folder folder;
  const Bytes midi = {'M', 'T', 'h', 'd', 0, 0, 0, 6, 0, 1, 0, 2, 1, 0x80, 'M', 'T', 'r', 'k'}, text(5000, 'a');
  for (const char* name : {"a", "a.vox", "a.gsm", "a.mp3", "a.raw", "a.wav"})
    for (const Bytes& bytes : {midi, text}) {
      put_file(folder / name, bytes);
      EXPECT_FALSE(begins_like_sound(folder / name)) << name;
      expect_user_error([&] { open_audio(folder / name); }, "cannot be read as sound");
    }
}

Outcome prepare(const Folder& folder, const std::string& options) {
  return call(fmt::format("prepare audio --force --output {0}/x.h5 --rate 8000 {1}", folder.path(), options));
}

TEST(PrepareAudioCommand, TakesTheSoundOfAFolderAndCountsTheRest) {
  const Folder folder;
  int taken = 0;
  for (const auto& [name, format] : formats) {
    const Bytes file = encoded_sound(format);
    if (file.empty()) continue;
    put_file(folder / fmt::format("music/{}.{}", taken % 3, name), file);
    ++taken;
  }
  put_file(folder / "music/unnamed", encoded_sound(SF_FORMAT_FLAC | SF_FORMAT_PCM_16));
  put_file(folder / "music/cover.jpg", {0xFF, 0xD8, 0xFF, 0xE0, 0, 16});
  put_file(folder / "music/notes", Bytes(100, 'a'));
  const Outcome outcome = prepare(folder, fmt::format("--input {}/music", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("left out 2 files other than sound files: 1 .jpg, 1 without an extension"),
            std::string::npos)
      << outcome.text;
  EXPECT_EQ(Dataset::open(folder / "x.h5")->sources().size(), static_cast<std::size_t>(taken + 1));
  put_file(folder / "music/broken.mp3", Bytes(3000, 'a'));
  const Outcome refused = prepare(folder, fmt::format("--input {}/music", folder.path()));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("music/broken.mp3: cannot be read as sound"), std::string::npos) << refused.text;
}

Bytes utf_16(const std::string& text) {
  Bytes out = {0xFF, 0xFE};
  for (const char c : text) out.insert(out.end(), {static_cast<std::uint8_t>(c), 0});
  return out;
}

// The log of a CD ripper begins like MPEG audio, text about a format with its name, and neither is sound.
TEST(PrepareAudioCommand, LeavesOutFilesThatOnlyBeginLikeSound) {
  const Folder folder;
  std::filesystem::create_directories(folder / "music");
  for (const char* name : {"1", "2", "3", "4"})
    write_wav(folder / fmt::format("music/{}.wav", name), std::vector<float>(4410, 0.1F), 44100);
  const Bytes log = utf_16("EAC extraction logfile\r\n" + std::string(1000, '.'));
  Bytes twice = log;
  twice.insert(twice.end(), log.begin(), log.end());
  put_file(folder / "music/rip.log", log);
  put_file(folder / "music/rips.log", twice);
  const std::string pages = "OggS pages are pages", marker = "fLaC is a marker";
  put_file(folder / "music/ogg.txt", Bytes(pages.begin(), pages.end()));
  put_file(folder / "music/flac.txt", Bytes(marker.begin(), marker.end()));
  const Outcome taken = prepare(folder, fmt::format("--input {}/music", folder.path()));
  EXPECT_EQ(taken.code, 0) << taken.text;
  EXPECT_NE(taken.text.find("left out 4 files other than sound files: 2 .log, 2 .txt"), std::string::npos)
      << taken.text;
  EXPECT_EQ(taken.text.find("mpg123"), std::string::npos) << taken.text;
  const Outcome refused = prepare(folder, fmt::format("--input {}/music/rip.log", folder.path()));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("music/rip.log: cannot be read as sound (one frame of MPEG audio"), std::string::npos);
  EXPECT_EQ(std::count(refused.text.begin(), refused.text.end(), '\n'), 1) << refused.text;
  for (const char* name : {"broken.au", "broken.w64", "broken.caf"}) {
    put_file(folder / "music/" + name, log);
    const Outcome named = prepare(folder, fmt::format("--input {}/music", folder.path()));
    EXPECT_EQ(named.code, 2) << named.text;
    EXPECT_NE(named.text.find(name + std::string(": cannot be read as sound")), std::string::npos) << named.text;
    std::filesystem::remove(folder / "music/" + name);
  }
}

// Sound of other kinds is no file of another kind: a folder may not lose it silently.
TEST(PrepareAudioCommand, SaysHowToConvertSoundOfOtherKinds) {
  const Folder folder;
  const std::string root = folder / "music";
  std::filesystem::create_directories(root);
  for (const int name : {1, 2})
    write_wav(fmt::format("{}/{}.wav", root, name), std::vector<float>(4410, 0.1F * static_cast<float>(name)), 44100);
  put_file(root + "/3.m4a", {0, 0, 0, 32, 'f', 't', 'y', 'p', 'M', '4', 'A', ' ', 0, 0, 0, 0});
  const std::string sentence = fmt::format(
      "music/3.m4a: MPEG-4 (such as M4A) is not read here; convert it first: ffmpeg -i '{0}/3.m4a' '{0}/3.flac'", root);
  const Outcome one = prepare(folder, "--split 0.5,0.5 --input " + root);
  EXPECT_EQ(one.code, 2);
  EXPECT_NE(one.text.find(sentence + ", or leave it out with --skip-others"), std::string::npos) << one.text;
  put_file(root + "/4.aac", {0xFF, 0xF1, 0x50, 0x80, 0, 0x1F, 0xFC, 0, 0, 0, 0, 0, 0});
  put_file(root + "/5.wma", {0x30, 0x26, 0xB2, 0x75, 0x8E, 0x66, 0xCF, 0x11, 0xA6, 0xD9, 0, 0, 0});
  Bytes cut = get_file(root + "/1.wav");
  cut.resize(cut.size() / 2);
  put_file(root + "/6.wav", cut);
  const Outcome all = prepare(folder, "--split 0.5,0.5 --input " + root);
  EXPECT_EQ(all.code, 2);
  for (const std::string said :
       {"music/3.m4a: is the first of 4 sound files (of 6) that cannot be used; ", sentence.c_str(),
        "4.aac: AAC is not read here", "5.wma: Windows Media", "6.wav: is cut short"})
    EXPECT_NE(all.text.find(said), std::string::npos) << said << "\n" << all.text;
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  const Outcome taken = prepare(folder, "--split 0.5,0.5 --skip-others --input " + root);
  EXPECT_EQ(taken.code, 0) << taken.text;
  EXPECT_NE(taken.text.find("left out: " + folder.path() + "/music/6.wav: is cut short"), std::string::npos)
      << taken.text;
  EXPECT_NE(taken.text.find("4 of 6 sound files are left out"), std::string::npos) << taken.text;
  EXPECT_EQ(Dataset::open(folder / "x.h5")->sources().size(), 2u);
}

TEST(PrepareAudioCommand, SaysWhichFilesDoNotStateTheirLength) {
  const Folder folder;
  for (const char* name : {"a", "b", "c"}) {
    write_wav(folder / fmt::format("{}.wav", name), std::vector<float>(4410, 0.1F), 44100);
    Bytes file = get_file(folder / fmt::format("{}.wav", name));
    if (*name != 'a') std::fill_n(file.begin() + 40, 4, std::uint8_t{0xFF});
    put_file(folder / fmt::format("{}.wav", name), file);
  }
  const Outcome outcome =
      prepare(folder, fmt::format("--split 1.0,0.0 --input {0}/a.wav {0}/b.wav {0}/c.wav", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("b.wav and 1 more: no length in the header"), std::string::npos) << outcome.text;
}

// A small likeness of MAESTRO 3.0.0: a folder per year with a WAV and a MIDI file per performance, and four other
// files.
TEST(PrepareAudioCommand, TakesAFolderOfMaestro) {
  const Folder folder;
  const std::string root = folder / "maestro-v3.0.0";
  for (const char* name : {"LICENSE", "README", "maestro-v3.0.0.csv", "maestro-v3.0.0.json"})
    put_file(root + "/" + name, Bytes(50, 'x'));
  for (const int year : {2004, 2018})
    for (int track = 0; track < 5; ++track) {
      const std::string stem = fmt::format("{}/{}/MIDI-Unprocessed_SMF_{}_R1_{}_wav", root, year, track, year);
      put_file(stem + ".midi", {'M', 'T', 'h', 'd', 0, 0, 0, 6});
      write_wav(stem + ".wav", std::vector<float>(static_cast<std::size_t>(4410 + track), 0.1F), 44100);
    }
  const Outcome taken = prepare(folder, "--input " + root);
  EXPECT_EQ(taken.code, 0) << taken.text;
  EXPECT_NE(taken.text.find("left out 14 files other than sound files: 1 .csv, 1 .json, 10 .midi, 2 without an "
                            "extension"),
            std::string::npos)
      << taken.text;
  EXPECT_EQ(Dataset::open(folder / "x.h5")->sources().size(), 10u);
}

// Files that are named like no recording count, and so does one named like a recording of another folder.
TEST(PrepareAudioCommand, RefusesAMajorityOfOtherFiles) {
  const Folder folder;
  const std::string root = folder / "music";
  for (const char* part : {"a", "b"}) std::filesystem::create_directories(root + "/" + part);
  write_wav(root + "/a/1.wav", std::vector<float>(4410, 0.1F), 44100);
  write_wav(root + "/b/2.wav", std::vector<float>(4410, 0.2F), 44100);
  for (const char* name : {"a/1.midi", "a/1.txt", "b/1.midi", "a/3.mid"}) put_file(root + "/" + name, Bytes(50, 'x'));
  EXPECT_EQ(prepare(folder, "--split 0.5,0.5 --input " + root).code, 0);
  put_file(root + "/b/2.wav.part", Bytes(50, 'x'));
  const Outcome refused = prepare(folder, "--split 0.5,0.5 --input " + root);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("music: holds 2 sound files and 5 other files (1 .mid, 2 .midi, 1 .part, 1 .txt); "
                              "convert or remove them, or leave them out with --skip-others"),
            std::string::npos)
      << refused.text;
  const Outcome taken = prepare(folder, "--split 0.5,0.5 --skip-others --input " + root);
  EXPECT_EQ(taken.code, 0) << taken.text;
  EXPECT_NE(taken.text.find("left out 5 files other than sound files"), std::string::npos) << taken.text;
}

// Loud, then silent: high columns, then only the axis. Two files have a boundary between them.
TEST(InfoPicture, ShowsSoundAsAStrip) {
  const Folder folder;
  std::vector<float> loud(4000);
  for (std::size_t i = 0; i < loud.size(); ++i) loud[i] = i % 2 == 0 ? 1.0F : -1.0F;
  write_wav(folder / "a.wav", loud, 8000);
  write_wav(folder / "b.wav", std::vector<float>(4000, 0.0F), 8000);
  ASSERT_EQ(prepare(folder, fmt::format("--input {0}/a.wav {0}/b.wav --split 1.0,0.0", folder.path())).code, 0);
  const Outcome outcome = call(fmt::format("info {0}/x.h5 --picture {0}/strip.png", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("strip.png: the sound of 1 split\n"), std::string::npos) << outcome.text;
  const Bytes file = get_file(folder / "strip.png");
  const Picture strip = read_png(file.data(), file.size(), "strip.png");
  ASSERT_EQ(strip.columns, 1200);
  ASSERT_EQ(strip.rows, 161);
  const auto filled = [&](std::int64_t column) {
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < strip.rows; ++row)
      count += strip.pixels[static_cast<std::size_t>((row * strip.columns + column) * 3)] == 70 ? 1 : 0;
    return count;
  };
  for (const std::int64_t column : {0, 300, 599}) EXPECT_EQ(filled(column), 161) << column;
  for (const std::int64_t column : {601, 900, 1199}) EXPECT_LE(filled(column), 2) << column;
  EXPECT_EQ(strip.pixels[600 * 3], 200);  // the boundary, at the top
}

}  // namespace
}  // namespace longstride::sound_formats_test
