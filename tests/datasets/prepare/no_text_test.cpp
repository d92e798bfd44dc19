// Files that are no text do not become text by mistake, and a note in place of a file is never taken for the file.
#include "datasets/formats/byte_input.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/files/first_bytes.h"
#include "framework/core/files/safetensors.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/datasets/support.h"

namespace longstride::no_text_test {
namespace {

using namespace std::string_literals;

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

const std::string pointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

std::string utf16(const std::string& text, bool big, bool mark) {
  std::string out = !mark ? "" : big ? "\xfe\xff" : "\xff\xfe";
  for (const char c : text) out += big ? std::string{'\0', c} : std::string{c, '\0'};
  return out;
}

struct Known {
  const char* name;
  std::string first;
};

const Known known[] = {
    {"Parquet", "PAR1\x15\x04\x15\x10\x15\x14"},
    {"Arrow", "ARROW1\0\0\xff\xff\xff\xff"s},
    {"Feather", "FEA1\0\0\0\0"s},
    {"PDF", "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"},
    {"Microsoft Office", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"},
    {"HDF5", "\x89HDF\r\n\x1a\n"},
    {"NumPy", "\x93NUMPY\x01\0v\0"s},
    {"SQLite", "SQLite format 3\0\x10"s},
    {"pickle", "\x80\x05\x95\x10\0\0\0\0\0\0\0"s},
    {"MP3", "ID3\x04\0\0\0\0\0\x17"s},
    {"MP3", "\xff\xfb\x90\x64"},
    {"JPEG", "\xff\xd8\xff\xe0\0\x10JFIF"s},
    {"PNG", "\x89PNG\r\n\x1a\n"},
    {"GIF", "GIF89a\x40\0\x40\0\x80"s},
    {"WAV", "RIFF\x24\x10\0\0WAVEfmt "s},
    {"FLAC", "fLaC\0\0\0\x22"s},
    {"Ogg", "OggS\0\x02"s},
    {"AAC", "\xff\xf1\x50\x80\0\x1f"s},
    {"WavPack", "wvpk\x20\0\0\0"s},
    {"ELF",
     "\x7f"
     "ELF\x02\x01\x01"},
    {"safetensors", "\x40\0\0\0\0\0\0\0{\"a\":{}}"s},
    {"Git-LFS", pointer},
    {"git-annex", "/annex/objects/SHA256E-s12--ab.txt\n"},
    {"UTF-16", utf16("A few words", false, true)},
    {"UTF-16", utf16("A few words", true, true)},
    {"UTF-16LE", utf16("Words without a mark", false, false)},
    {"UTF-16BE", utf16("Words without a mark", true, false)},
    {"UTF-32", "\xff\xfe\0\0A\0\0\0"s},
};

TEST(NoText, IsRefusedByNameUnlessAnyIsTaken) {
  const Folder folder;
  for (const Known& format : known) {
    const Bytes file = bytes_of(format.first + std::string(64, 'x'));
    const bool rest_counts =
        format.first.find(" mark") != std::string::npos || std::string(format.name).starts_with("UTF-16");
    put_file(folder / "x", rest_counts ? bytes_of(format.first + format.first.substr(2)) : file);
    for (const bool raw : {false, true})
      expect_user_error([&] { prepare_bytes({{folder / "x"}, "", raw}, to(folder / "x.h5")); }, format.name);
    expect_user_error([&] { prepare_bytes({{folder / "x"}}, to(folder / "x.h5")); }, "with --any");
    prepare_bytes({{folder / "x"}, "", false, true}, to(folder / "x.h5", true));
    EXPECT_EQ(whole_split(*Dataset::open(folder / "x.h5"), "train").front(),
              static_cast<std::uint8_t>(format.first[0]));
    std::filesystem::remove(folder / "x.h5");
  }
}

TEST(NoText, NamesTheRemedy) {
  const Folder folder;
  const auto refused = [&](const std::string& content, const char* part) {
    put_file(folder / "x", bytes_of(content));
    expect_user_error([&] { prepare_bytes({{folder / "x"}}, to(folder / "x.h5")); }, part);
  };
  refused(pointer, "git lfs pull");
  refused(utf16("A few words", false, true), "iconv -f UTF-16 -t UTF-8");
  refused(utf16("Words without a mark", true, false), "iconv -f UTF-16BE -t UTF-8 < OLD > NEW");
  refused("\x89PNG\r\n\x1a\n", "; prepare pictures with `longstride prepare images`");
  refused("II*\0\x08\0\0\0"s, "convert pictures to PNG");
  refused("MThd\0\0\0\x06"s, "it holds notes; render them to WAV");
  refused("OggS\0\x02"s, "longstride prepare audio");
  refused("%PDF-1.7\n", "pdftotext");
}

// Words with which formats begin.
TEST(NoText, IsNotSeenInText) {
  for (const char* text :
       {"PAR1 is the magic of Parquet", "GIF89a is a format", "ID3 tags are old", "RIFF and RIFX", "BM is short",
        "ORC is another", "MZ begins programs", "SQLite format 3 is on disk", "GGUF", "\xef\xbb\xbf marked", "FORM 12",
        "{\"a\": 1}", "<html>", "\x1b[31mred", "version https://example.org", "\xd0\x9f\xd1\x80\xd0\xb8"})
    EXPECT_EQ(format_of(text).family, FormatFamily::none) << text;
  EXPECT_EQ(format_of({}).family, FormatFamily::none);
}

TEST(NoText, IsCountedInFoldersAndSeenInCompressedFiles) {
  const Folder folder;
  put_file(folder / "in/a.txt", bytes_of("a few words"));
  put_file(folder / "in/b.png", bytes_of("\x89PNG\r\n\x1a\n"));
  put_file(folder / "in/c.png", bytes_of("\x89PNG\r\n\x1a\n..."));
  expect_user_error([&] { prepare_bytes({{folder / "in"}}, to(folder / "x.h5")); }, "like 1 more input");
  EXPECT_EQ(shell(fmt::format("cd '{}' && gzip in/b.png", folder.path())).code, 0);
  expect_user_error([&] { prepare_bytes({{folder / "in/b.png.gz"}}, to(folder / "x.h5")); }, "begins like PNG");
  prepare_bytes({{folder / "in/b.png.gz"}, "", true}, to(folder / "x.h5"));  // compressed bytes are asked for
}

TEST(NoText, IsSuspectedWhereBytesLookLikeNoise) {
  const Folder folder;
  put_file(folder / "noise", random_bytes(100'000, 1));
  put_file(folder / "text", Bytes(100'000, 'x'));
  const auto warning = [&](const char* name) {
    return call(fmt::format("--quiet prepare bytes --force --input {0}/{1} --output {0}/x.h5", folder.path(), name))
        .text;
  };
  EXPECT_NE(warning("noise").find("an entropy of 8.00 bits"), std::string::npos) << warning("noise");
  EXPECT_EQ(warning("text"), "");
}

TEST(Pointers, AreNoPicturesSoundsArraysDatasetsOrWeights) {
  const Folder folder;
  for (const char* name : {"p/a.png", "x.npy", "x.tar", "x.h5", "x.safetensors", "x.wav"})
    put_file(folder / name, bytes_of(pointer));
  const auto pictures = [&](const char* name) { prepare_images(config_of({folder / name}), to(folder / "y.h5")); };
  for (const char* name : {"p", "p/a.png", "x.npy", "x.tar"})
    expect_user_error([&] { pictures(name); }, "git lfs pull");
  expect_user_error([&] { Dataset::open(folder / "x.h5"); }, "git lfs pull");
  expect_user_error([&] { SafetensorsReader(folder / "x.safetensors"); }, "git lfs pull");
  PrepareAudioConfig sound;
  sound.inputs = {folder / "x.wav"};
  expect_user_error([&] { prepare_audio(sound, to(folder / "y.h5")); }, "x.wav: ");
}

}  // namespace
}  // namespace longstride::no_text_test
