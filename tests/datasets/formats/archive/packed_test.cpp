// `prepare bytes` with what libarchive unpacks.
#include <algorithm>
#include <map>

#include "datasets/formats/archive.h"
#include "datasets/formats/zip/zip_directory.h"
#include "datasets/prepare/byte_content.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/support.h"

namespace longstride::packed_test {
namespace {

Bytes all_bytes(const std::string& path) {
  const auto dataset = Dataset::open(path);
  Bytes out;
  for (const char* split : split_names) {
    const Bytes part = whole_split(*dataset, split);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Bytes packed(const Bytes& content, const char* filter) { return make_archive({{"x", content}}, "raw", filter); }

// Every form of `files`, by the name of its file.
std::map<std::string, Bytes> forms(const NamedFiles& files) {
  std::map<std::string, Bytes> out;
  for (const char* format : {"ustar", "gnutar", "pax", "zip"}) out[format] = make_archive(files, format);
  out["stored"] = make_archive(files, "zip", "", "zip:compression=store");
  for (const char* filter : {"gzip", "xz", "bzip2", "zstd"})
    out[std::string("tar.") + filter] = make_archive(files, "gnutar", filter);
  return out;
}

void expect_refusal(const Folder& folder, const std::string& name, const Bytes& file, const std::string& message) {
  put_file(folder / name, file);
  expect_user_error([&] { prepare_bytes({{folder / name}}, to(folder / "x.h5")); }, message);
}

void expect_nothing_left(const Folder& folder) {
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(PackedInputs, GiveTheBytesOfTheirFilesWhateverTheirNames) {
  const Folder folder;
  const Bytes text = random_bytes(300'000, 1), more = random_bytes(100, 2);
  Bytes both = more;
  both.insert(both.end(), text.begin(), text.end());
  for (const char* filter : {"xz", "bzip2", "zstd", "gzip"}) {
    put_file(folder / "a.txt", packed(text, filter));
    prepare_bytes({{folder / "a.txt"}}, to(folder / "x.h5", true));
    EXPECT_TRUE(all_bytes(folder / "x.h5") == text) << filter;
  }
  const NamedFiles files = {{"./z.txt", more}, {"__MACOSX/._z.txt", Bytes(9, 1)}, {"empty", {}}, {"a/enwik8", text}};
  for (const auto& [name, bytes] : forms(files)) {
    put_file(folder / name, bytes);
    const Outcome outcome =
        call(fmt::format("prepare bytes --force --input {0}/{1} --output {0}/x.h5", folder.path(), name));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find(" bytes, which unpack to 300,100\n"), std::string::npos) << outcome.text;
    EXPECT_TRUE(all_bytes(folder / "x.h5") == both) << name;
    const auto sources = Dataset::open(folder / "x.h5")->sources();
    ASSERT_EQ(sources.size(), 1u);
    EXPECT_EQ(sources[0].bytes, static_cast<std::int64_t>(bytes.size()));
    EXPECT_EQ(sources[0].sha256, sha256_of_file(folder / name));
  }
}

TEST(PackedInputs, MayHaveNamesThatAZipSaysAreUtf8) {
  const Folder folder;
  const Bytes first = random_bytes(3000, 1), second = random_bytes(2000, 2);
  put_file(folder / "a.zip", with_utf8_names(make_archive({{"\u00e4", first}, {"\u00f6", second}}, "zip")));
  prepare_bytes({{folder / "a.zip"}}, to(folder / "x.h5"));
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_TRUE(all_bytes(folder / "x.h5") == both);
}

// pzstd writes a frame without content before each with content.
TEST(PackedInputs, MayBeginWithFramesOfZstdWithoutContent) {
  const Folder folder;
  const Bytes first = random_bytes(3000, 1), second = random_bytes(2000, 2);
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  const auto joined = [](std::initializer_list<Bytes> parts) {
    Bytes out;
    for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
    return out;
  };
  const Bytes none = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
  Bytes large = {0x5f, 0x2a, 0x4d, 0x18, 0, 4, 0, 0};
  large.resize(8 + 1024, 'x');
  const Bytes tar = make_archive({{"a", both}}, "gnutar", "zstd");
  for (const Bytes& file : {joined({none, packed(first, "zstd"), none, packed(second, "zstd"), none}),
                            joined({large, none, packed(both, "zstd")}), joined({large, tar})}) {
    put_file(folder / "a", file);
    prepare_bytes({{folder / "a"}}, to(folder / "x.h5", true));
    EXPECT_TRUE(all_bytes(folder / "x.h5") == both);
  }
  std::filesystem::remove(folder / "x.h5");
  expect_refusal(folder, "b", none, "is damaged or an empty zstd file");
  expect_refusal(folder, "b", Bytes(large.begin(), large.end() - 1), "is damaged or an empty zstd file");
  expect_refusal(folder, "b", joined({large, packed(both, "zstd"), {1, 2}}), "is damaged or an empty zstd file");
  expect_nothing_left(folder);
}

// As tar was before POSIX: without a magic, and with a sum of bytes that some programs took to be signed.
TEST(PackedInputs, MayBeTarArchivesWithoutMagic) {
  const Folder folder;
  const Bytes text = random_bytes(3000, 1);
  for (const bool is_signed : {false, true}) {
    Bytes tar = make_archive({{"\u00e4.txt", text}}, "ustar");
    std::fill(tar.begin() + 257, tar.begin() + 265, std::uint8_t{0});
    std::fill(tar.begin() + 148, tar.begin() + 156, std::uint8_t{' '});
    int sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += is_signed ? static_cast<std::int8_t>(tar[i]) : tar[i];
    const std::string digits = fmt::format("{:06o}", sum);
    std::copy(digits.begin(), digits.end(), tar.begin() + 148);
    tar[154] = 0;
    for (const Bytes& file : {tar, packed(tar, "gzip")}) {
      put_file(folder / "a", file);
      prepare_bytes({{folder / "a"}}, to(folder / "x.h5", true));
      EXPECT_TRUE(all_bytes(folder / "x.h5") == text) << is_signed;
    }
    std::filesystem::remove(folder / "x.h5");
    tar[0] ^= 1;  // the sum is wrong
    put_file(folder / "a", tar);
    prepare_bytes({{folder / "a"}}, to(folder / "x.h5", true));
    EXPECT_TRUE(all_bytes(folder / "x.h5") == tar);
  }
}

TEST(PackedInputs, AreRefusedWhenTheyAreTarArchivesWithoutFiles) {
  const Folder folder;
  const Bytes zeros(10'240, 0);
  for (const char* name : {"a.tar", "A.TAR"}) expect_refusal(folder, name, zeros, "holds no files");
  expect_refusal(folder, "a.tgz", packed(zeros, "gzip"), "holds no files");
  expect_refusal(folder, "a.tar.zst", packed(zeros, "zstd"), "holds no files");
  expect_nothing_left(folder);
  put_file(folder / "zeros.bin", zeros);  // data, by its name
  prepare_bytes({{folder / "zeros.bin"}}, to(folder / "x.h5"));
  EXPECT_TRUE(all_bytes(folder / "x.h5") == zeros);
}

// The first part of a zip archive in several files begins with a mark of its own.
TEST(PackedInputs, AreRefusedWhenTheyArePartsOfAZip) {
  const Folder folder;
  Bytes part = {'P', 'K', 7, 8};
  const Bytes zip = make_archive({{"a", random_bytes(3000, 1)}}, "zip");
  part.insert(part.end(), zip.begin(), zip.end());
  expect_refusal(folder, "a.z01", part, "is compressed (split zip), so a model would learn its codes; unpack it first");
  expect_refusal(folder, "a.tar", make_archive({{"a.z01", part}}, "ustar"), "a.z01: is packed itself (split zip)");
  expect_nothing_left(folder);
}

// "./a" and "a" are unpacked to one file.
TEST(PackedInputs, AreRefusedWhenTwoFilesHaveOneName) {
  const Folder folder;
  for (const char* other : {"p/a", "./p/a", "p//a", "q/../p/a"})
    expect_refusal(folder, "a.tar", make_archive({{"p/a", Bytes(9, 1)}, {other, Bytes(9, 2)}}, "ustar"),
                   "holds two files named '");
  expect_nothing_left(folder);
}

// tar writes a file once and each further name of it as a link.
TEST(PackedInputs, SayHowManyLinksAreLeftOut) {
  const Folder folder;
  const Bytes text = random_bytes(5000, 3);
  put_file(folder / "p/a.txt", text);
  const Outcome packed = shell(
      fmt::format("cd {} && ln p/a.txt p/b.txt && ln -s a.txt p/c.txt && mkdir p/d && tar cf p.tar p", folder.path()));
  ASSERT_EQ(packed.code, 0) << packed.text;
  const Outcome outcome = call(fmt::format("prepare bytes --input {0}/p.tar --output {0}/x.h5", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("which unpack to 5,000; left out 2 links to other files"), std::string::npos)
      << outcome.text;
  EXPECT_TRUE(all_bytes(folder / "x.h5") == text);
}

TEST(PackedInputs, MayBeSparseFilesThatEndWithAHole) {
  const Folder folder;
  Bytes holes = random_bytes(5000, 1);
  holes.resize(100'000, 0);
  const Bytes middle = random_bytes(5000, 2);
  holes.insert(holes.end(), middle.begin(), middle.end());
  holes.resize(300'001, 0);
  put_file(folder / "p/a", holes);
  put_file(folder / "p/b", Bytes(200'000, 0));
  put_file(folder / "p/c", middle);
  Bytes wanted = holes;
  wanted.resize(wanted.size() + 200'000, 0);
  wanted.insert(wanted.end(), middle.begin(), middle.end());
  for (const char* format : {"gnu", "pax"}) {
    const Outcome outcome =
        shell(fmt::format("cd {0} && cp -r --sparse=always p {1} && cd {1} && tar cf ../p.tar --format={1} --sparse "
                          "--hole-detection=raw a b c",
                          folder.path(), format));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
    ASSERT_LT(std::filesystem::file_size(folder / "p.tar"), 100'000u);
    prepare_bytes({{folder / "p.tar"}}, to(folder / "x.h5", true));
    EXPECT_TRUE(all_bytes(folder / "x.h5") == wanted) << format;
  }
}

TEST(PackedInputs, AreTakenFromStandardInput) {
  const Folder folder;
  const Bytes text = random_bytes(100'000, 1);
  for (const auto& [name, bytes] : forms({{"enwik8", text}})) {
    put_file(folder / name, bytes);
    const Outcome outcome = shell(fmt::format("cat {1}/{2} | '{0}' prepare bytes --force --input - --output {1}/x.h5",
                                              LONGSTRIDE_COMMAND, folder.path(), name));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_TRUE(all_bytes(folder / "x.h5") == text) << name;
  }
}

TEST(PackedInputs, AreRefusedWhenCutShort) {
  const Folder folder;
  const Bytes text = random_bytes(50'000, 1);
  std::map<std::string, Bytes> all = forms({{"a", text}, {"b", text}});
  for (const char* filter : {"xz", "bzip2", "zstd"}) all[filter] = packed(text, filter);
  for (const auto& [name, whole] : all) {
    const bool tar = name == "ustar" || name == "gnutar" || name == "pax";  // shorter than the magic: plain bytes
    for (std::size_t part = 1; part < 16; ++part) {
      SCOPED_TRACE(fmt::format("{} cut at sixteenth {}", name, part));
      expect_refusal(folder, name, cut_short(whole, part), name);
    }
    for (const std::size_t less : {1, 2, 8, 15}) {
      if (tar) continue;  // within the end mark
      SCOPED_TRACE(fmt::format("{} without its last {} bytes", name, less));
      expect_refusal(folder, name, Bytes(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(less)), name);
    }
  }
  expect_nothing_left(folder);
}

TEST(PackedInputs, AreRefusedWhenDamaged) {
  const Folder folder;
  const Bytes text = random_bytes(50'000, 1);
  std::map<std::string, Bytes> all = forms({{"a", text}});
  for (const char* filter : {"xz", "bzip2"}) all[filter] = packed(text, filter);
  for (const char* unchecked : {"ustar", "gnutar", "pax", "tar.zstd"}) all.erase(unchecked);  // no sum of their content
  for (auto& [name, bytes] : all) {
    bytes[bytes.size() / 2] ^= 0x10;
    expect_refusal(folder, name, bytes, "damaged");
  }
  for (const char* filter : {"xz", "bzip2", "zstd"}) {
    Bytes longer = packed(text, filter);
    longer.insert(longer.end(), {'m', 'o', 'r', 'e'});
    expect_refusal(folder, filter, longer,
                   filter == std::string("bzip2") ? "4 bytes follow the end of its" : "is damaged or an empty");
    const Bytes start = packed(text, filter);
    Bytes garbage(start.begin(), start.begin() + 6);
    garbage.resize(1000, 'x');
    expect_refusal(folder, filter, garbage, "is damaged or an empty");
    expect_refusal(folder, filter, packed({}, filter), "is damaged or an empty");
  }
  expect_nothing_left(folder);
}

TEST(PackedInputs, SayHowToUseTextThatOnlyLooksPacked) {
  const Folder folder;
  for (const std::string start : {"BZh is a short word. ", "PK\x03\x04 begins zip archives ", "\x1f\x8b"}) {
    Bytes text(start.begin(), start.end());
    text.resize(2000, 'x');
    expect_refusal(folder, "a", text, "again, or use its bytes as they are with --raw if it only looks packed");
  }
  Bytes text(257, 'a');
  for (const char letter : std::string("ustar")) text.push_back(static_cast<std::uint8_t>(letter));
  text.resize(2000, 'a');
  expect_refusal(folder, "a", text, "--raw if it only looks packed");
  PrepareBytesConfig config{{folder / "a"}};
  config.raw = true;
  prepare_bytes(config, to(folder / "x.h5"));
  EXPECT_TRUE(all_bytes(folder / "x.h5") == text);
}

// libarchive ends this reason with a line feed.
TEST(PackedInputs, AreRefusedInOneLine) {
  const Folder folder;
  Bytes zip = make_archive({{"a", Bytes(1000, 'a')}}, "zip");
  for (std::size_t i = 0; i + 1 < zip.size(); ++i)  // wherever the file's size is stated
    if (zip[i] + 256 * zip[i + 1] == 1000) zip[i] ^= 1;
  expect_refusal(folder, "a.zip", zip, "(ZIP uncompressed data is wrong size (read 1000, expected 1001)); copy");
}

// zstd --long writes windows beyond what libarchive's decoder takes, and rare archives use rare methods.
TEST(PackedInputs, AreNotCalledDamagedWhenTheyAreBeyondALimit) {
  const Folder folder;
  constexpr std::uint8_t window_2_gib = 21 << 3;
  const Bytes frame = {0x28, 0xb5, 0x2f, 0xfd, 0, window_2_gib, 4 << 3 | 1, 0, 0, 't', 'e', 'x', 't'};
  const std::string sentence =
      "a: cannot be read here, which is no sign of damage (its window exceeds the 128 MiB that are read); unpack it "
      "first, with zstd -d --long=31";
  expect_refusal(folder, "a", frame, sentence);
  PrepareImagesConfig images;
  images.inputs = {folder / "a"};
  expect_user_error([&] { prepare_images(images, to(folder / "x.h5")); }, sentence);
  Bytes zip = make_archive({{"a", Bytes(1000, 'a')}}, "zip");
  constexpr std::uint8_t deflate_64 = 9;
  for (std::size_t i = 0; i + 12 < zip.size(); ++i)
    if (zip[i] == 'P' && zip[i + 1] == 'K' && zip[i + 2] < 5) zip[i + (zip[i + 2] == 3 ? 8 : 10)] = deflate_64;
  expect_refusal(folder, "a.zip", zip, "a.zip:a: cannot be read here, which is no sign of damage (Unsupported ZIP");
  expect_nothing_left(folder);
}

// Whatever byte changes: the same files, or a refusal. A changed name, mark or count must not drop a file.
TEST(PackedInputs, LoseNoFileToAChangedByteOfAZip) {
  const Folder folder;
  const Bytes text = random_bytes(20, 1), more(200, 'x');
  Bytes both = text;
  both.insert(both.end(), more.begin(), more.end());
  for (const char* options : {"", "zip:zip64"}) {
    const Bytes whole = make_archive({{"a.txt", text}, {"sub/b.txt", more}}, "zip", "", options);
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (const int change : {0x01, 0x40, whole[at] ^ '.', whole[at] ^ '/'}) {
        Bytes changed = whole;
        changed[at] = static_cast<std::uint8_t>(changed[at] ^ change);
        const MemoryBlob blob("a.zip", changed.data(), changed.size());
        Bytes found;
        try {
          const Packing packing = packing_of(blob);
          if (!packing.archive) continue;  // the first bytes are no zip archive's any more, so these are its bytes
          found.resize(static_cast<std::size_t>(content_size(blob, packing, true).bytes));
          open_content(blob, packing)->read(found.data(), found.size());
        } catch (const UserError&) {
          continue;
        }
        EXPECT_TRUE(found == both) << options << " byte " << at << " changed by " << change << " of " << whole.size();
      }
  }
}

// Programs that write to a pipe put sizes behind the content, others put a program in front of the archive.
TEST(PackedInputs, MayBeZipsOfEveryKind) {
  const Folder folder;
  const Bytes text = random_bytes(3000, 1);
  put_file(folder / "a", text);
  const Outcome packed = shell(
      fmt::format("cd {} && zip -q - a > piped.zip < a && mkdir d && cp a d && ln -s a d/l && zip -qry folder.zip d",
                  folder.path()));
  if (packed.code != 0) GTEST_SKIP() << "no zip: " << packed.text;
  Bytes program = {'#', '!', '/', 'b', 'i', 'n', '/', 's', 'h', '\n'};
  const Bytes zip = get_file(folder / "piped.zip");
  program.insert(program.end(), zip.begin(), zip.end());
  const MemoryBlob blob("program", program.data(), program.size());
  EXPECT_EQ(files_in_zip_directory(blob), 1);
  for (const char* name : {"piped.zip", "folder.zip"}) {
    prepare_bytes({{folder / name}}, to(folder / "x.h5", true));
    EXPECT_TRUE(all_bytes(folder / "x.h5") == text) << name;
  }
}

// libarchive's own reader of gzip does not compare them, so a wrong byte could be learnt.
TEST(PackedInputs, CompareTheChecksumsOfGzipAroundArchives) {
  const Folder folder;
  const Bytes tar = make_archive({{"a", random_bytes(3000, 1)}}, "gnutar", "gzip");
  for (const std::size_t from_end : {8, 5, 4, 1}) {
    Bytes changed = tar;
    changed[changed.size() - from_end] ^= 1;
    const MemoryBlob blob("a.tar.gz", changed.data(), changed.size());
    expect_user_error(
        [&] {
          for (const auto archive = open_archive(blob); archive->next();)
            ;
        },
        "a.tar.gz: is a damaged gzip file");
  }
}

TEST(PackedInputs, AreRefusedWhenTheyHoldNoText) {
  const Folder folder;
  const Bytes text = random_bytes(1000, 1);
  expect_refusal(folder, "twice", packed(packed(text, "gzip"), "xz"), "is packed twice (gzip in xz)");
  expect_refusal(folder, "same", packed(packed(text, "xz"), "xz"), "is compressed twice");
  expect_refusal(folder, "zip.xz", packed(make_archive({{"a", text}}, "zip"), "xz"), "is packed twice (zip in xz)");
  for (const auto& [name, bytes] : forms({{"b", text}, {"a.xz", packed(text, "xz")}}))
    expect_refusal(folder, name, bytes, ":a.xz: is packed itself (xz); unpack ");
  for (const auto& [name, bytes] : forms({{"a", text}, {"a", text}}))
    expect_refusal(folder, name, bytes, "holds two files named 'a'");
  for (const auto& [name, bytes] : forms({{".hidden", text}})) expect_refusal(folder, name, bytes, "holds no files");
  for (const auto& [name, bytes] : forms({{"a", {}}})) expect_refusal(folder, name, bytes, "is empty");
  Bytes none = make_archive({}, "zip");
  expect_refusal(folder, "none.zip", none, "none.zip: holds no files");
  none[20] = 3, none.insert(none.end(), {'w', 'h', 'y'});  // a comment
  expect_refusal(folder, "none.zip", none, "none.zip: holds no files");
  none.push_back('x');
  expect_refusal(folder, "none.zip", none, "none.zip: is not a tar or zip archive");
  expect_nothing_left(folder);
}

// 70 MB of zeros in a few KB; the same in an archive, whose table states the size.
TEST(PackedInputs, AreRefusedWhenTheyAreMadeToFillDisks) {
  const Folder folder;
  const Bytes zeros(70'000'000, 0);
  const Bytes bomb = packed(zeros, "zstd");
  ASSERT_LT(bomb.size(), 10'000u);
  expect_refusal(folder, "bomb.zst", bomb, "unpacks to more than 2,000 times as many");
  expect_refusal(folder, "bomb.tar.zst", make_archive({{"a", zeros}}, "gnutar", "zstd"), "made to fill disks");
  expect_nothing_left(folder);
}

}  // namespace
}  // namespace longstride::packed_test
