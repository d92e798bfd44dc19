// Files of archives: documents and pictures among them are no text, and copies stay together.
#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/datasets/support.h"

namespace longstride::members_test {
namespace {

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

TEST(FilesOfArchives, ThatAreNoTextAreRefused) {
  const Folder folder;
  const auto refused = [&](const NamedFiles& files, const char* part) {
    put_file(folder / "x.zip", make_archive(files, "zip"));
    expect_user_error([&] { prepare_bytes({{folder / "x.zip"}}, to(folder / "x.h5", true)); }, part);
    prepare_bytes({{folder / "x.zip"}, "", false, true}, to(folder / "x.h5", true));
  };
  refused({{"_rels/.rels", bytes_of("<a/>")}, {"[Content_Types].xml", bytes_of("<?xml?>")}}, "a document of Office");
  refused({{"mimetype", bytes_of("application/vnd.oasis.opendocument.text")}, {"content.xml", bytes_of("<a/>")}},
          "an OpenDocument file");
  refused({{"mimetype", bytes_of("application/epub+zip")}, {"a.html", bytes_of("<p>")}}, "an EPUB book");
  refused({{"arr_0.npy", bytes_of("\x93NUMPY\x01...")}}, "x.zip:arr_0.npy: begins like NumPy");
  refused({{"a.txt", bytes_of("words")}, {"archive/data.pkl", bytes_of("\x80\x02}q")}}, "begins like pickle");
  put_file(folder / "t.tar", make_archive({{"a.txt", bytes_of("text")}, {"b.png", bytes_of("\x89PNG....")}}, "ustar"));
  expect_user_error([&] { prepare_bytes({{folder / "t.tar"}}, to(folder / "x.h5", true)); },
                    "t.tar:b.png: begins like");
}

TEST(FilesOfArchives, ThatAreCopiesStayTogether) {
  const Folder folder;
  NamedFiles texts, pictures;
  for (int i = 0; i < 10; ++i) {
    const std::string word = fmt::format("{}", i % 5);
    std::string text;
    while (text.size() < 1000) text += word + " ";
    texts.emplace_back(fmt::format("{}.txt", i), bytes_of(text.substr(0, 1000)));
    pictures.emplace_back(fmt::format("{}.png", i),
                          encode_png(side, side, random_bytes(picture, static_cast<std::uint64_t>(i % 5)), {}));
  }
  for (const char* format : {"zip", "ustar"}) {
    put_file(folder / "t", make_archive(texts, format));
    prepare_bytes({{folder / "t"}, "0.4,0.4,0.2"}, to(folder / "x.h5", true));
    const auto text = Dataset::open(folder / "x.h5");
    EXPECT_EQ(text->size("train").bytes, 4000) << format;
    for (const std::uint8_t byte : whole_split(*text, "train")) EXPECT_LT(byte, '2') << format;
    put_file(folder / "p", make_archive(pictures, format));
    PrepareImagesConfig config = config_of({folder / "p"});
    config.split = "6,2,2";
    prepare_images(config, to(folder / "x.h5", true));
    const auto dataset = Dataset::open(folder / "x.h5");
    for (const char* name : split_names) {
      const Bytes pixels = whole_split(*dataset, name);
      for (const auto& [file, content] : pictures) {
        Bytes wanted = random_bytes(picture, static_cast<std::uint64_t>((file[0] - '0') % 5));
        int found = 0;
        for (std::size_t i = 0; i < pixels.size() / picture; ++i) found += slice(pixels, i) == wanted ? 1 : 0;
        EXPECT_TRUE(found == 0 || found == 2) << name;
      }
    }
  }
}

}  // namespace
}  // namespace longstride::members_test
