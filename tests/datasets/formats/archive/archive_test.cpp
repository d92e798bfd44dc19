#include <algorithm>

#include "datasets/formats/archive.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"

namespace longstride {
namespace {

constexpr const char* stored = "zip:compression=store";

// Names "0.png" .., one per picture.
NamedFiles pngs_of(const Bytes& pixels) {
  NamedFiles files;
  for (std::size_t i = 0; i < pixels.size() / picture; ++i)
    files.emplace_back(fmt::format("{}.png", i), encode_png(side, side, slice(pixels, i), {}));
  return files;
}

TEST(Archives, GiveThePixelsOfTheirFiles) {
  const Folder folder;
  const Bytes pixels = random_bytes(5 * picture, 1);
  NamedFiles files = pngs_of(pixels);
  files.emplace_back("labels.tsv", Bytes{1, 2});
  put_file(folder / "a.tar", make_archive(files, "gnutar"));
  for (const char* filter : {"gzip", "xz", "bzip2", "zstd"})
    put_file(folder / fmt::format("a.{}", filter), make_archive(files, "gnutar", filter));
  put_file(folder / "a.zip", make_archive(files, "zip"));
  const Bytes flat = make_npy("(5, 192)", planar(pixels)), labels = make_npy("(5,)", Bytes(5, 1));
  put_file(folder / "stored.npz", make_archive({{"labels.npy", labels}, {"data.npy", flat}}, "zip", "", stored));
  put_file(folder / "deflated.npz", make_archive({{"data.npy", flat}, {"labels.npy", labels}}, "zip"));
  put_file(folder / "wide.npz", make_archive({{"other.npy", flat}}, "zip", "", "zip:zip64"));
  for (const char* form :
       {"a.tar", "a.gzip", "a.xz", "a.bzip2", "a.zstd", "a.zip", "stored.npz", "deflated.npz", "wide.npz"})
    EXPECT_TRUE(train_of(config_of({folder / form}), folder) == pixels) << form;
}

Bytes every_split(const PrepareImagesConfig& config, const Folder& folder) {
  Bytes all = train_of(config, folder);
  const auto dataset = Dataset::open(folder / "x.h5");
  for (const char* name : {"valid", "test"}) {
    all.push_back('|');
    const Bytes part = whole_split(*dataset, name);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The division depends only on the names of the pictures, not on what holds them or in which order.
TEST(Archives, DividesAFolderAndItsArchivesAlike) {
  const Folder folder;
  const Bytes pixels = random_bytes(40 * picture, 21);
  NamedFiles files;
  for (std::size_t i = 0; i < 40; ++i)
    files.emplace_back(fmt::format("{}{}.png",
                                   i % 3 == 0   ? "sub/"
                                   : i % 5 == 0 ? "sub-b/"
                                                : "",
                                   i),
                       encode_png(side, side, slice(pixels, i), {}));
  for (const auto& [name, bytes] : files) put_file(folder / "p/" + name, bytes);
  for (const std::string prefix : {"", "./", "p/", "./p//", "/p/", "xy/../"}) {
    NamedFiles members = {{prefix + "1.png", {1, 2, 3}},
                          {prefix + ".hidden/7.png", {1}}};  // 1.png is overwritten below
    for (std::size_t i = 0; i < 40; ++i)
      members.emplace_back(prefix + files[i * 23 % 40].first, files[i * 23 % 40].second);
    put_file(folder / fmt::format("{}.tar", prefix.size()), make_archive(members, "gnutar"));
  }
  PrepareImagesConfig config = config_of({folder / "p"});
  config.split = "0.7,0.2,0.1";
  config.seed = 3;
  const Bytes wanted = every_split(config, folder);
  for (const int length : {0, 2, 3, 5, 6}) {
    config.inputs = {folder / fmt::format("{}.tar", length)};
    EXPECT_TRUE(every_split(config, folder) == wanted) << length;
  }
}

TEST(Archives, SayWhatIsLeftOutAsFoldersDo) {
  const Folder folder;
  const Bytes png = encode_png(side, side, random_bytes(picture, 9), {});
  const Bytes other = encode_png(side, side, random_bytes(picture, 10), {});
  NamedFiles files = {{"a.png", png}, {"b.png", other}, {"c.GIF", {1}}, {"d.gif", {1}}};
  for (const bool refused : {false, true}) {
    if (refused) files.emplace_back("labels\x1b[2J.t\x1bv", Bytes{1});
    std::filesystem::remove_all(folder / "p");
    for (const auto& [name, bytes] : files) put_file(folder / "p/" + name, bytes);
    put_file(folder / "p.tar", make_archive(files, "gnutar"));
    for (const char* form : {"p", "p.tar"}) {
      std::vector<std::string> notes;
      PrepareOutput output = to(folder / "x.h5", true);
      output.note = [&](const std::string& note) { notes.push_back(note); };
      PrepareImagesConfig config = config_of({folder / form});
      if (refused) {
        expect_user_error([&] { prepare_images(config, output); }, "2 pictures and 3 other files (2 .gif, 1 .t\\x1bv)");
        config.skip_others = true;
      }
      prepare_images(config, output);
      ASSERT_EQ(notes.size(), 1u);
      EXPECT_NE(notes[0].find("other than pictures: 2 .gif"), std::string::npos) << notes[0];
    }
  }
}

// A large archive takes minutes to search, during which a signal must be noticed.
TEST(Archives, ReportTheirSearchAsFoldersDo) {
  const Folder folder;
  const Bytes png = encode_png(side, side, Bytes(picture, 9), {});
  put_file(folder / "p/a.png", png);
  put_file(folder / "p.tar", make_archive({{"a.png", png}}, "ustar"));
  for (const char* input : {"p", "p.tar"}) {
    PrepareOutput output = to(folder / "x.h5");
    output.progress = [](std::int64_t, std::int64_t total) {
      if (total == 0) throw user_error("stopped before the whole is known");
    };
    expect_user_error([&] { prepare_images(config_of({folder / input}), output); }, "stopped before the whole");
  }
}

// As when the archive is unpacked, but not silently.
TEST(Archives, SayHowManyFilesLaterOnesReplace) {
  const Folder folder;
  const Bytes pixels = random_bytes(picture, 9), png = encode_png(side, side, pixels, {});
  put_file(folder / "p.tar", make_archive({{"a.png", {1, 2}}, {"./a.png", png}}, "gnutar"));
  std::vector<std::string> notes;
  PrepareOutput output = to(folder / "x.h5");
  output.note = [&](const std::string& note) { notes.push_back(note); };
  prepare_images(config_of({folder / "p.tar"}), output);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("left out 1 file, because later ones have their names"), std::string::npos);
  EXPECT_TRUE(whole_split(*Dataset::open(folder / "x.h5"), "train") == pixels);
}

TEST(Archives, SayHowManyLinksAreLeftOut) {
  const Folder folder;
  const Bytes pixels = random_bytes(picture, 9);
  put_file(folder / "p/a.png", encode_png(side, side, pixels, {}));
  const Outcome packed =
      shell(fmt::format("cd {} && ln p/a.png p/b.png && ln -s a.png p/c.png && tar cf p.tar p", folder.path()));
  ASSERT_EQ(packed.code, 0) << packed.text;
  std::vector<std::string> notes;
  PrepareOutput output = to(folder / "x.h5");
  output.note = [&](const std::string& note) { notes.push_back(note); };
  prepare_images(config_of({folder / "p.tar"}), output);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("p.tar: left out 2 links to other files"), std::string::npos) << notes[0];
  EXPECT_TRUE(whole_split(*Dataset::open(folder / "x.h5"), "train") == pixels);
}

// A name is not cut at the 100 bytes that fit a header, which would lose its .png, and need not be ASCII.
TEST(Archives, KeepLongNamesAndForeignOnes) {
  const Folder folder;
  const Bytes pixels = random_bytes(2 * picture, 8);
  const NamedFiles files = {{std::string(120, 'x') + ".png", encode_png(side, side, slice(pixels, 0), {})},
                            {"y\u00e9.png", encode_png(side, side, slice(pixels, 1), {})}};
  for (const char* format : {"gnutar", "pax", "zip"}) {
    put_file(folder / "a.tar", make_archive(files, format));
    EXPECT_TRUE(train_of(config_of({folder / "a.tar"}), folder) == pixels) << format;
    const FileBlob blob(folder / "a.tar");
    const auto archive = open_archive(blob);
    for (const auto& [name, content] : files) {
      ASSERT_TRUE(archive->next());
      EXPECT_EQ(archive->member(), name) << format;
      EXPECT_EQ(archive->left(), content.size()) << format;
    }
  }
}

// Whatever the locale: the program has none, so libarchive could not say these names.
TEST(Archives, KeepNamesThatAZipSaysAreUtf8) {
  const Folder folder;
  const Bytes pixels = random_bytes(3 * picture, 8);
  NamedFiles files = pngs_of(pixels);
  files[1].first = "1\u00fc.png", files[2].first = "2\U0001f600.png";
  put_file(folder / "a.zip", with_utf8_names(make_archive(files, "zip")));
  EXPECT_TRUE(train_of(config_of({folder / "a.zip"}), folder) == pixels);
  const FileBlob blob(folder / "a.zip");
  const auto archive = open_archive(blob);
  for (const auto& [name, content] : files) {
    ASSERT_TRUE(archive->next());
    EXPECT_EQ(archive->member(), name);
  }
  const Bytes npz = make_archive({{"\u00fc.npy", make_npy("(3, 8, 8, 3)", pixels)}}, "zip");
  put_file(folder / "npz.zip", make_archive({{"a.npz", with_utf8_names(npz)}}, "zip"));
  EXPECT_TRUE(train_of(config_of({folder / "npz.zip"}), folder) == pixels);
}

TEST(Archives, RefuseNamesThatCannotBeRead) {
  const Folder folder;
  NamedFiles files = pngs_of(random_bytes(2 * picture, 8));
  files[1].first = "\xc3\xc3.png";
  put_file(folder / "a.zip", with_utf8_names(make_archive(files, "zip")));
  expect_user_error([&] { prepare_images(config_of({folder / "a.zip"}), to(folder / "x.h5")); },
                    "a.zip: a file in it has a name that cannot be read; unpack it to a folder and use that");
}

TEST(Archives, RefuseDamageAndOtherFiles) {
  const Folder folder;
  const Bytes pixels = random_bytes(2 * picture, 5), npy = make_npy("(2, 8, 8, 3)", pixels);
  const auto damaged = [&](Bytes archive, const Bytes& at) {
    *std::search(archive.begin(), archive.end(), at.begin(), at.end()) ^= 1;
    return archive;
  };
  put_file(folder / "text.npz", {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd'});
  put_file(folder / "names.npz", make_archive({{"x.npy", {1}}, {"y.npy", {1}}}, "zip"));
  put_file(folder / "sum.npz", damaged(make_archive({{"data.npy", npy}}, "zip", "", stored), slice(pixels, 1)));
  put_file(folder / "header.tar", damaged(make_archive(pngs_of(pixels), "gnutar"), {'1', '.', 'p', 'n', 'g'}));
  put_file(folder / "empty.tar", Bytes(1024, 0));
  put_file(folder / "text.tar", Bytes(2048, 'x'));
  put_file(folder / "packed.tar", {0xfd, '7', 'z', 'X', 'Z', 0, 0, 0});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"text.npz", "is not a tar or zip archive"},
      {"names.npz", "no array 'data' among its 2 (x.npy y.npy)"},
      {"sum.npz", "sum.npz:data.npy: is not a tar or zip archive, or is damaged (ZIP bad CRC"},
      {"header.tar", "header.tar:0.png: is not a tar or zip archive, or is damaged"},
      {"empty.tar", "holds no PNG, JPEG, WebP, .npy or .npz files"},
      {"text.tar", "is not a tar or zip archive"},
      {"packed.tar", "is not a tar or zip archive"},
  };
  for (const auto& [name, message] : cases) {
    SCOPED_TRACE(name);
    expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, message);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

// Without its member 'data', the other one would be taken for the pictures.
TEST(Archives, RefuseAnNpzWithinThatLostAnArray) {
  const Folder folder;
  const Bytes npy = make_npy("(2, 8, 8, 3)", random_bytes(2 * picture, 5));
  Bytes npz = make_archive({{"data.npy", npy}, {"mirror.npy", npy}}, "zip");
  put_file(folder / "whole.tar", make_archive({{"a.npz", npz}}, "ustar"));
  train_of(config_of({folder / "whole.tar"}), folder);
  npz[2] ^= 1;  // damages the mark of the first file's header
  put_file(folder / "a.tar", make_archive({{"a.npz", npz}}, "ustar"));
  expect_user_error([&] { prepare_images(config_of({folder / "a.tar"}), to(folder / "y.h5")); }, "a.tar:a.npz: is ");
}

TEST(Archives, AreNotSingleFilesThatAreCompressed) {
  const Folder folder;
  const Bytes png = pngs_of(random_bytes(picture, 1))[0].second;
  for (const char* filter : {"gzip", "xz", "bzip2", "zstd"}) {
    put_file(folder / "a.png.packed", make_archive({{"x", png}}, "raw", filter));
    const std::string message =
        fmt::format("is a single file compressed by {}, not an archive of files; unpack it first", filter);
    expect_user_error([&] { prepare_images(config_of({folder / "a.png.packed"}), to(folder / "x.h5")); }, message);
    PrepareCifar10Config config;
    config.inputs = {folder / "a.png.packed"};
    expect_user_error([&] { prepare_cifar10(config, to(folder / "x.h5")); }, message);
  }
}

TEST(Archives, RefuseEveryTruncation) {
  const Folder folder;
  const Bytes pixels = random_bytes(4 * picture, 6), npy = make_npy("(4, 8, 8, 3)", pixels);
  const NamedFiles files = pngs_of(pixels);
  for (const auto& [name, whole] : {std::pair<std::string, Bytes>{"a.npz", make_archive({{"data.npy", npy}}, "zip")},
                                    {"b.npz", make_archive({{"data.npy", npy}}, "zip", "", stored)},
                                    {"a.tar", make_archive(files, "gnutar")},
                                    {"a.tar.gz", make_archive(files, "gnutar", "gzip")},
                                    {"a.tar.xz", make_archive(files, "gnutar", "xz")}}) {
    for (std::size_t part = 0; part < 16; ++part) {
      SCOPED_TRACE(fmt::format("{} cut at sixteenth {}", name, part));
      const Bytes cut = cut_short(whole, part);
      // The end mark of a tar archive has two blocks, of which one is enough.
      if (name == "a.tar" && cut.size() > whole.size() - 1024 + 512) continue;
      put_file(folder / name, cut);
      expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, name);
    }
  }
  // Between two files, which libarchive does not notice.
  const Bytes whole = make_archive(files, "gnutar");
  put_file(folder / "a.tar", Bytes(whole.begin(), whole.begin() + 1024));
  expect_user_error([&] { prepare_images(config_of({folder / "a.tar"}), to(folder / "x.h5")); }, "cut short");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(Archives, GiveEveryPartOfJoinedOnes) {
  const Folder folder;
  const Bytes pixels = random_bytes(3 * picture, 7);
  const NamedFiles files = pngs_of(pixels);
  for (const char* filter : {"", "gzip", "xz", "zstd"}) {
    const Bytes first = make_archive({files[0], files[1]}, "gnutar", filter);
    const Bytes second = make_archive({files[2]}, "pax", filter);
    Bytes whole = first;
    whole.insert(whole.end(), second.begin(), second.end());
    put_file(folder / "a.tar", whole);
    EXPECT_TRUE(train_of(config_of({folder / "a.tar"}), folder) == pixels) << filter;
    whole.pop_back();
    put_file(folder / "a.tar", whole);
    expect_user_error([&] { prepare_images(config_of({folder / "a.tar"}), to(folder / "y.h5")); }, "a.tar");
  }
}

TEST(Archives, MayBePaddedByZerosAndNothingElse) {
  const Folder folder;
  const Bytes pixels = random_bytes(2 * picture, 7);
  Bytes tar = make_archive(pngs_of(pixels), "gnutar");
  tar.resize(tar.size() + 512 * 37, 0);
  const Bytes junk(512, 'J');
  for (const char* filter : {"", "gzip"}) {
    const auto pack = [&](const Bytes& bytes) {
      return *filter == 0 ? bytes : make_archive({{"x", bytes}}, "raw", filter);
    };
    put_file(folder / "a.tar", pack(tar));
    EXPECT_TRUE(train_of(config_of({folder / "a.tar"}), folder) == pixels) << filter;
    for (const std::size_t more : {100, 512}) {
      Bytes longer = tar;
      longer.insert(longer.end(), junk.begin(), junk.begin() + static_cast<std::ptrdiff_t>(more));
      put_file(folder / "b.tar", pack(longer));
      expect_user_error([&] { prepare_images(config_of({folder / "b.tar"}), to(folder / "y.h5")); }, "is damaged (");
    }
  }
}

// Real pictures, from the shared archive.
TEST(Archives, GiveRealPictures) {
  const std::string packed = shared_file("image64/tiny_imagenet_val_400.tar.xz");
  if (packed.empty()) GTEST_SKIP() << "no shared data";
  const Folder folder;
  PrepareImagesConfig config;
  config.inputs = {packed};
  config.split = "400,0,0";
  prepare_images(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  ASSERT_EQ(dataset->size("train").sequences, 400);
  // The dataset is in the order of the names, but the published checksum is in the order of the archive.
  std::vector<std::string> names, sorted;
  const FileBlob blob(packed);
  for (const auto archive = open_archive(blob); archive->next();)
    if (archive->member().ends_with(".png")) names.push_back(archive->member());
  sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const Bytes pixels = whole_split(*dataset, "train");
  Sha256 sha;
  for (const std::string& name : names) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), name) - sorted.begin();
    sha.update(pixels.data() + at * 12288, 12288);
  }
  // sha256 of the bytes whose md5 is published with the archive, f5d01dd53fce3d41cd07faff7f8ddaa1
  EXPECT_EQ(sha.hex(), "36fad4173eae4f77b36421085f21ab2b469c4f82e877882a3ff303ab69367528");
}

}  // namespace
}  // namespace longstride
