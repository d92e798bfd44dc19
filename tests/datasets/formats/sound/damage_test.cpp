// Sound files that lost a part, or have a second recording behind the first: libsndfile reads what it can and says
// nothing.
#include <sndfile.h>

#include <algorithm>

#include "framework/core/text/numbers.h"
#include "tests/datasets/formats/sound/sounds.h"
#include "tests/datasets/support.h"

namespace longstride::sound_damage_test {
namespace {

void expect_refused(const Bytes& file, const std::string& why) {
  const Folder folder;
  put_file(folder / "a", file);
  expect_user_error([&] { read_sound(folder / "a"); }, why);
}

std::size_t samples_of(const Bytes& file) {
  const Folder folder;
  put_file(folder / "a", file);
  return read_sound(folder / "a").size();
}

// Where the pages of an Ogg file begin, and its end.
std::vector<std::size_t> pages_of(const Bytes& file) {
  std::vector<std::size_t> pages;
  for (std::size_t at = 0; at < file.size();) {
    pages.push_back(at);
    std::size_t size = 27 + file[at + 26];
    for (std::size_t i = 0; i < file[at + 26]; ++i) size += file[at + 27 + i];
    at += size;
  }
  pages.push_back(file.size());
  return pages;
}

// As RFC 3533 defines it, bit by bit.
void set_page_checksum(Bytes& file, std::size_t from, std::size_t to) {
  std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(from) + 22, 4, std::uint8_t{0});
  std::uint32_t sum = 0;
  for (std::size_t i = from; i < to; ++i) {
    sum ^= static_cast<std::uint32_t>(file[i]) << 24;
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 0x80000000U) != 0 ? sum << 1 ^ 0x04c11db7U : sum << 1;
  }
  for (std::size_t i = 0; i < 4; ++i) file[from + 22 + i] = static_cast<std::uint8_t>(sum >> (8 * i));
}

Bytes joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Bytes without(Bytes file, std::size_t from, std::size_t to) {
  file.erase(file.begin() + static_cast<std::ptrdiff_t>(from), file.begin() + static_cast<std::ptrdiff_t>(to));
  return file;
}

constexpr int vorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS, opus = SF_FORMAT_OGG | SF_FORMAT_OPUS;

class Ogg : public ::testing::TestWithParam<int> {};

// Also one in the last page, without which libsndfile takes the page before for the last.
TEST_P(Ogg, RefusesAChangedBitOfAnyPage) {
  const Bytes whole = encoded_sound(GetParam());
  ASSERT_EQ(samples_of(whole), sound_length);
  const std::vector<std::size_t> pages = pages_of(whole);
  ASSERT_GE(pages.size(), 4u);
  for (std::size_t p = 0; p + 1 < pages.size(); ++p)
    for (const std::size_t at : {pages[p] + 7, pages[p] + 24, pages[p + 1] - 1}) {
      Bytes changed = whole;
      changed[at] ^= 1;
      expect_refused(changed, "a: the Ogg page at byte ");
    }
}

TEST_P(Ogg, RefusesAMissingPage) {
  const Bytes whole = encoded_sound(GetParam());
  const std::vector<std::size_t> pages = pages_of(whole);
  for (std::size_t p = 1; p + 2 < pages.size(); ++p)
    expect_refused(without(whole, pages[p], pages[p + 1]),
                   fmt::format("is damaged (it is page {} and follows page {}); copy or download", p + 1, p - 1));
  expect_refused(without(whole, pages[pages.size() - 2], whole.size()), "is cut short (its last page is missing)");
  expect_refused(without(whole, 0, pages[1]), "is damaged (it is not marked as the first)");
}

TEST_P(Ogg, RefusesASecondRecordingAndSaysWhereItBegins) {
  const Bytes whole = encoded_sound(GetParam());
  expect_refused(joined(whole, whole),
                 fmt::format("a: holds several recordings one after the other, the second from byte {} on; split it",
                             thousands(static_cast<std::int64_t>(whole.size()))));
}

// A film's sound is next to its pictures, in a stream with another serial number.
TEST_P(Ogg, RefusesOtherStreams) {
  Bytes whole = encoded_sound(GetParam());
  const std::vector<std::size_t> pages = pages_of(whole);
  Bytes other(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(pages[1]));
  other[14] ^= 1;
  set_page_checksum(other, 0, other.size());
  whole.insert(whole.begin() + static_cast<std::ptrdiff_t>(pages[1]), other.begin(), other.end());
  expect_refused(whole, "a: holds other streams next to its first, such as video");
}

TEST_P(Ogg, IgnoresATagBehindTheLastPage) {
  const Bytes whole = encoded_sound(GetParam());
  EXPECT_EQ(samples_of(joined(whole, Bytes(128, 'T'))), sound_length);
  expect_refused(joined(whole, {'O', 'g', 'g', 'S', 0, 0}), "it follows the page that is marked as the last");
}

// The position of the last page is the number of samples up to its end.
TEST_P(Ogg, RefusesLessSoundThanItsLastPageCounts) {
  Bytes file = encoded_sound(GetParam(), 10 * sound_length);
  ASSERT_EQ(samples_of(file), 10 * sound_length);
  const std::vector<std::size_t> pages = pages_of(file);
  const std::size_t last = pages[pages.size() - 2];
  file[last + 7] = static_cast<std::uint8_t>(file[last + 7] + 64);  // 64 x 256 more
  set_page_checksum(file, last, file.size());
  expect_refused(file, "ends or is damaged after");
}

INSTANTIATE_TEST_SUITE_P(All, Ogg, ::testing::Values(vorbis, opus),
                         [](const auto& test) { return test.param == opus ? "Opus" : "Vorbis"; });

class StatedLength : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(StatedLength, RefusesATruncatedFile) {
  const Bytes whole = encoded_sound(GetParam().second);
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(samples_of(whole), sound_length);
  for (std::size_t part = 0; part < 16; ++part) {
    SCOPED_TRACE(part);
    expect_refused(cut_short(whole, part), "a: ");
  }
  expect_refused(without(whole, whole.size() - 2, whole.size()), "a: ");
}

constexpr std::pair<const char*, int> stating[] = {
    {"wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16},   {"rifx", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG},
    {"rf64", SF_FORMAT_RF64 | SF_FORMAT_PCM_16}, {"w64", SF_FORMAT_W64 | SF_FORMAT_PCM_16},
    {"au", SF_FORMAT_AU | SF_FORMAT_PCM_16},     {"au_little", SF_FORMAT_AU | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE},
    {"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16}, {"caf", SF_FORMAT_CAF | SF_FORMAT_PCM_16},
    {"nist", SF_FORMAT_NIST | SF_FORMAT_PCM_16}, {"voc", SF_FORMAT_VOC | SF_FORMAT_PCM_16}};
INSTANTIATE_TEST_SUITE_P(All, StatedLength, ::testing::ValuesIn(stating),
                         [](const auto& test) { return std::string(test.param.first); });

// The size of the file is right, that of the samples is not.
TEST(StatedLengths, RefusesADataChunkBeyondTheEnd) {
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_AIFF}) {
    Bytes file = encoded_sound(format | SF_FORMAT_PCM_16);
    const std::string name = format == SF_FORMAT_WAV ? "data" : "SSND";
    const auto data = std::search(file.begin(), file.end(), name.begin(), name.end());
    data[format == SF_FORMAT_WAV ? 6 : 5] = 7;  // 7 x 65,536 and more
    expect_refused(file, "is cut short (its header counts ");
  }
}

// A size of 32 bits counts from 0 again after 4 GiB, and libsndfile reads what it counts.
TEST(StatedLengths, RefusesSamplesThatTheHeaderDoesNotCount) {
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_AIFF, SF_FORMAT_CAF}) {
    Bytes file = encoded_sound(format | SF_FORMAT_PCM_16);
    const std::string name = format == SF_FORMAT_AIFF ? "SSND" : "data";
    const auto size = std::search(file.begin(), file.end(), name.begin(), name.end()) + 4;
    const int byte = format == SF_FORMAT_WAV ? 1 : format == SF_FORMAT_AIFF ? 2 : 6;  // the second lowest
    Bytes fewer = file;
    fewer[static_cast<std::size_t>(size - file.begin() + byte)] -= 40;  // 40 x 256 bytes
    expect_refused(fewer, " more follow, which are no chunk; repair its header");
  }
}

// Chunks, tags and padding are no samples.
TEST(StatedLengths, AcceptsWhatOftenFollowsSamples) {
  const Bytes file = encoded_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  Bytes list = {'L', 'I', 'S', 'T', 0, 16, 0, 0}, tag = {'T', 'A', 'G', 0}, zeros(9000, 0), junk(4000, 7);
  list.resize(8 + 4096, 'x'), tag.resize(9000, 1);
  for (const Bytes& rest : {list, tag, zeros, junk}) EXPECT_EQ(samples_of(joined(file, rest)), sound_length);
  Bytes odd = encoded_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_U8, sound_length - 1);  // with a byte of padding
  odd.pop_back();                                                                 // which some programs forget
  odd[4] -= 1;
  EXPECT_EQ(samples_of(joined(odd, list)), sound_length - 1);
}

TEST(StatedLengths, RefusesASecondFile) {
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_RF64, SF_FORMAT_AIFF, SF_FORMAT_W64, SF_FORMAT_CAF}) {
    const Bytes whole = encoded_sound(format | SF_FORMAT_PCM_16);
    const std::string where = thousands(static_cast<std::int64_t>(whole.size()));
    expect_refused(joined(whole, whole), "recordings one after the other, the second from byte " + where + " on");
  }
}

void put_number(Bytes& file, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) file[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

bool states_length(const Bytes& file) {
  const Folder folder;
  put_file(folder / "a", file);
  return open_audio(folder / "a")->states_length();
}

// A recorder that writes to a pipe cannot know the length: ffmpeg, sox, arecord, gstreamer and others write these.
TEST(StatedLengths, AcceptsAnUnknownOne) {
  const Bytes whole = encoded_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  EXPECT_TRUE(states_length(whole));
  for (const std::uint32_t size : {0xFFFFFFFFU, 0U, 0x7FFFF000U, 0x7FFFFF00U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFDBU}) {
    SCOPED_TRACE(size);
    Bytes file = whole;
    put_number(file, 4, size < 0xFFFFFF00U && size > 0 ? size + 36 : size);
    EXPECT_EQ(samples_of(file), sound_length);
    EXPECT_TRUE(states_length(file));
    put_number(file, 40, size);
    EXPECT_EQ(samples_of(file), sound_length);
    EXPECT_FALSE(states_length(file));
  }
  Bytes au = encoded_sound(SF_FORMAT_AU | SF_FORMAT_PCM_16);
  std::fill_n(au.begin() + 8, 4, std::uint8_t{0xFF});
  EXPECT_EQ(samples_of(au), sound_length);
  EXPECT_FALSE(states_length(au));
}

// The chunk of the samples is whole, whatever the size before it says: some programs count the first 8 bytes too.
TEST(StatedLengths, AcceptsAWrongSizeOfTheFile) {
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_AIFF, SF_FORMAT_RF64, SF_FORMAT_W64}) {
    Bytes file = encoded_sound(format | SF_FORMAT_PCM_16);
    const std::size_t size = format == SF_FORMAT_AIFF   ? 7
                             : format == SF_FORMAT_RF64 ? 20
                             : format == SF_FORMAT_W64  ? 16
                                                        : 4;
    file[size] = static_cast<std::uint8_t>(file[size] + 8);
    if (file[size] < 8) file[size + (format == SF_FORMAT_AIFF ? -1 : 1)] += 1;  // the carry
    EXPECT_EQ(samples_of(file), sound_length) << format;
  }
}

// Without samples, whatever follows them.
TEST(StatedLengths, RefusesAFileWithoutSamples) {
  Bytes file = encoded_sound(SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  file.resize(44);
  put_number(file, 4, 36 + 12), put_number(file, 40, 0);
  expect_refused(joined(file, {'L', 'I', 'S', 'T', 4, 0, 0, 0, 'I', 'N', 'F', 'O'}), "a: has 0 samples");
}

// The second of two files joined end to end, of which libsndfile reads the first.
TEST(Sound, RefusesASecondFlacOrMp3File) {
  for (const int format : {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, mpeg | layer_3}) {
    const Bytes whole = encoded_sound(format);
    if (whole.empty()) continue;  // this libsndfile does not write MP3
    const std::string where = thousands(static_cast<std::int64_t>(whole.size()));
    expect_refused(joined(whole, whole), "recordings one after the other, the second from byte " + where + " on");
    Bytes tag = {'I', 'D', '3', 4, 0, 0, 0, 0, 0, 50, 'T', 'I', 'T', '2', 0, 0, 0, 5, 0, 0, 0, 'I', 'n', 'f', 'o'};
    tag.resize(60);
    EXPECT_EQ(samples_of(joined(tag, whole)), sound_length);
  }
}

// An MP3 file without the first frame, which states the length, and where its frames begin.
struct Mp3 {
  Bytes file;
  std::vector<std::size_t> frames;
};

Mp3 mp3_without_length() {
  const Bytes whole = encoded_sound(mpeg | layer_3, 5 * sound_length);
  Mp3 mp3;
  if (whole.empty()) return mp3;
  const auto next = std::search(whole.begin() + 4, whole.end(), whole.begin(), whole.begin() + 2);
  mp3.file = Bytes(next, whole.end());
  for (std::size_t at = 0; at < mp3.file.size();) {
    constexpr std::size_t kilobits[] = {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320};
    mp3.frames.push_back(at);
    at += 144000 * kilobits[mp3.file[at + 2] >> 4] / sound_rate + (mp3.file[at + 2] >> 1 & 1);
  }
  return mp3;
}

// The decoder ends there, or skips it, and says nothing.
TEST(Mp3WithoutLength, RefusesLostFramesAnywhere) {
  const Mp3 mp3 = mp3_without_length();
  if (mp3.file.empty()) GTEST_SKIP() << "this libsndfile does not write MP3";
  const std::size_t heard = samples_of(mp3.file), last = mp3.frames.size() - 1;
  ASSERT_GE(heard, 5 * sound_length);
  for (const std::size_t frame : {std::size_t{1}, last / 2, last - 1}) {
    const std::size_t at = mp3.frames[frame];
    const std::string where = "a: is damaged at byte " + thousands(static_cast<std::int64_t>(at)) + ", where ";
    Bytes changed = mp3.file;
    changed[at] ^= 0x40;
    expect_refused(changed, where);
    expect_refused(without(mp3.file, at, at + 10), where);
    std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(at), 300, std::uint8_t{0});
    expect_refused(changed, where);
  }
  Bytes hole = mp3.file;  // as of a download that did not arrive in order
  std::fill_n(hole.begin() + static_cast<std::ptrdiff_t>(mp3.frames[last / 3]), 5000, std::uint8_t{0});
  expect_refused(hole, "are no frame of sound; copy or download it again");
  expect_refused(without(mp3.file, mp3.file.size() - 3, mp3.file.size()),
                 "a: is cut short (its last frame lacks 3 bytes)");
}

TEST(Mp3WithoutLength, AcceptsTagsBetweenAndBehindFrames) {
  const Mp3 mp3 = mp3_without_length();
  if (mp3.file.empty()) GTEST_SKIP() << "this libsndfile does not write MP3";
  const std::size_t heard = samples_of(mp3.file);
  Bytes tag = {'T', 'A', 'G'}, id3 = {'I', 'D', '3', 4, 0, 0, 0, 0, 0, 50};
  tag.resize(128, 'x'), id3.resize(60, 0);
  EXPECT_EQ(samples_of(joined(mp3.file, tag)), heard);
  Bytes between = mp3.file;
  between.insert(between.begin() + static_cast<std::ptrdiff_t>(mp3.frames[40]), id3.begin(), id3.end());
  EXPECT_EQ(samples_of(between), heard);
}

}  // namespace
}  // namespace longstride::sound_damage_test
