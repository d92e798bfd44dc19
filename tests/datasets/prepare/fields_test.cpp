// `prepare bytes` of lines of JSON, of given splits, and of folders that have splits by name.
#include <zlib.h>

#include "datasets/prepare/text/field_stream.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride::fields_test {
namespace {

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string split_text(const std::string& path, const char* split) {
  const Bytes bytes = whole_split(*Dataset::open(path), split);
  return {bytes.begin(), bytes.end()};
}
std::string all_text(const std::string& path) {
  return split_text(path, "train") + split_text(path, "valid") + split_text(path, "test");
}
PrepareBytesConfig of_field(const std::string& path, const std::string& field = "text") {
  PrepareBytesConfig config{{path}};
  config.field = field;
  return config;
}

void put_gzip(const std::string& path, const std::string& text) {
  put_file(path, {});
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

constexpr const char* records =
    "{\"id\": 1, \"text\": \"one\\ntwo\\n\", \"meta\": {\"text\": \"no\", \"tags\": [1, {\"text\": 2}]}}\n"
    "\r\n"
    "{\"text\": \"\\u00e4 \\ud83d\\ude00 \\\"quoted\\\"\"}\r\n"
    "{\"text\": \"\", \"id\": 3}\n"
    "{\"url\": null, \"text\": \"last\"}";
constexpr const char* texts = "one\ntwo\n\u00e4 \U0001F600 \"quoted\"\n\nlast\n";

TEST(Fields, AreTheTextsOfTheirRecordsHoweverPacked) {
  const Folder folder;
  put_file(folder / "a.jsonl", bytes_of(records));
  put_gzip(folder / "a.jsonl.gz", records);
  for (const char* name : {"a.jsonl", "a.jsonl.gz"}) {
    prepare_bytes(of_field(folder / name), to(folder / "x.h5", true));
    EXPECT_EQ(all_text(folder / "x.h5"), texts) << name;
    const auto sources = Dataset::open(folder / "x.h5")->sources();
    ASSERT_EQ(sources.size(), 1u);
    EXPECT_EQ(sources[0].bytes, std::ssize(get_file(folder / name)));
  }
}

TEST(Fields, OfAnyPieceOfALineAreTheSame) {
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += "{\"n\": " + std::to_string(i) + ", \"text\": \"" + std::string(i, 'x') + "\"}\n";
  struct Pieces final : UnsizedStream {
    std::string_view left;
    std::size_t read(void* out, std::size_t most) override {
      const std::size_t count = left.copy(static_cast<char*>(out), most);
      left.remove_prefix(count);
      return count;
    }
  };
  auto pieces = std::make_unique<Pieces>();
  pieces->left = lines;
  FieldStream stream(std::move(pieces), "x", "text", record_mark);
  std::string found(9'000'000, '\0');
  std::size_t got = 0;
  for (std::size_t most = 1;; most = most % 4099 + 1) {
    const std::size_t now = stream.read(found.data() + got, most);
    got += now;
    if (now < most) break;
  }
  std::string expected;
  for (int i = 0; i < 3000; ++i) expected += std::string(i, 'x') + "\n\xff";
  EXPECT_EQ(found.substr(0, got), expected);
}

TEST(Fields, AreDocumentsOfTheirRecords) {
  const Folder folder;
  put_file(folder / "a.jsonl", bytes_of(records));
  PrepareBytesConfig config = of_field(folder / "a.jsonl");
  config.split = "1.0,0.0,0.0";
  config.documents.documents = DocumentsAre::lines;
  prepare_bytes(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(split_text(folder / "x.h5", "train"), texts);
  EXPECT_NE(call(fmt::format("info {}", folder / "x.h5")).text.find("in 4 documents"), std::string::npos);
  EXPECT_EQ(dataset->info().documents, "lines");
}

TEST(Fields, ThatAreNotThereAreRefused) {
  const Folder folder;
  const auto refuses = [&](const std::string& lines, const std::string& sentence) {
    put_file(folder / "a.jsonl", bytes_of(lines));
    expect_user_error([&] { prepare_bytes(of_field(folder / "a.jsonl", "txt"), to(folder / "x.h5")); }, sentence);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  };
  refuses("{\"txt\": \"a\"}\n{\"text\": \"a\", \"id\": 3}\n", "a.jsonl:2: has no field 'txt'; choose from text, id");
  refuses("{}", "a.jsonl:1: has no field 'txt'; the object is empty");
  refuses("{\"txt\": 4}", "a.jsonl:1: field 'txt' is a number, but must be text");
  refuses("{\"txt\": null}", "a.jsonl:1: field 'txt' is null, but must be text");
  refuses("{\"txt\": [\"a\"]}", "a.jsonl:1: field 'txt' is a list, but must be text");
  refuses("[{\"txt\": \"a\"}]", "a.jsonl:1: is no object");
  refuses("\"txt\"", "a.jsonl:1: is no object");
  refuses("\n\n{\"txt\": \"a\"", "a.jsonl:3: is not JSON from byte");
  refuses("{\"txt\": \"\xff\"}", "a.jsonl:1: is not JSON from byte");
  refuses("{\"txt\": \"\\ud800\"}", "a.jsonl:1: is not JSON from byte");
  refuses(std::string(200'000, '['), "a.jsonl:1: is not JSON from byte");
  PrepareBytesConfig raw = of_field(folder / "a.jsonl");
  raw.raw = true;
  expect_user_error([&] { prepare_bytes(raw, to(folder / "x.h5")); }, "--raw takes files as they are, but --field is");
}

TEST(GivenSplits, AreTheInputsGiven) {
  const Folder folder;
  for (const char* name : {"a", "b", "c", "d"}) put_file(folder / name, bytes_of(std::string("text of ") + name));
  PrepareBytesConfig config{{folder / "b", folder / "a"}};
  config.valid_inputs = {folder / "c"};
  prepare_bytes(config, to(folder / "x.h5"));
  EXPECT_EQ(split_text(folder / "x.h5", "train"), "text of btext of a");
  EXPECT_EQ(split_text(folder / "x.h5", "valid"), "text of c");
  EXPECT_EQ(split_text(folder / "x.h5", "test"), "");
  EXPECT_EQ(Dataset::open(folder / "x.h5")->info().split, "by the inputs given: 18 bytes train, 9 valid, 0 test");
  config.test_inputs = {folder / "d"};
  prepare_bytes(config, to(folder / "y.h5"));
  EXPECT_EQ(split_text(folder / "y.h5", "test"), "text of d");
  config.split = "0.9,0.1,0";
  expect_user_error([&] { prepare_bytes(config, to(folder / "z.h5")); }, "--split is '0.9,0.1,0', but --valid-input");
  config.split = "";
  config.test_inputs = {folder / "a"};
  expect_user_error([&] { prepare_bytes(config, to(folder / "z.h5")); }, "given twice");
}

TEST(GivenSplits, WarnOfCopiesInOthers) {
  const Folder folder;
  put_file(folder / "a", bytes_of("the same"));
  put_file(folder / "b", bytes_of("the same"));
  put_file(folder / "c", bytes_of("another"));
  PrepareBytesConfig config{{folder / "a"}};
  config.valid_inputs = {folder / "b", folder / "c"};
  PrepareOutput output = to(folder / "x.h5", true);
  std::string warned;
  output.warn = [&](const std::string& sentence) { warned += sentence; };
  prepare_bytes(config, output);
  EXPECT_NE(warned.find("copies in another of the splits that are given: 1 of 3 files"), std::string::npos) << warned;
  EXPECT_EQ(split_text(folder / "x.h5", "valid"), "the sameanother");
  config.duplicates = Duplicates::drop;
  prepare_bytes(config, output);
  EXPECT_EQ(split_text(folder / "x.h5", "valid"), "another");
}

// WikiText's and PG-19's folders, as they come.
TEST(NamedSplits, AreTakenAsTheyCome) {
  const Folder folder;
  for (const char* split : {"train", "valid", "test"})
    put_file(folder / ("wikitext/wiki." + std::string(split) + ".tokens"), bytes_of(std::string("= ") + split));
  put_file(folder / "wikitext/README.md", bytes_of("about"));
  std::string said;
  PrepareOutput output = to(folder / "x.h5", true);
  output.note = [&](const std::string& sentence) { said += sentence; };
  prepare_bytes({{folder / "wikitext"}}, output);
  for (const char* split : {"train", "valid", "test"})
    EXPECT_EQ(split_text(folder / "x.h5", split), std::string("= ") + split);
  EXPECT_NE(said.find("wikitext: train, valid and test are its files with these names"), std::string::npos) << said;
  EXPECT_NE(said.find("left out 1 other file"), std::string::npos) << said;
  for (const char* name : {"train/1.txt", "train/2.txt", "validation/3.txt", "test/4.txt", "metadata.csv"})
    put_file(folder / ("pg19/" + std::string(name)), bytes_of(name));
  prepare_bytes({{folder / "pg19"}}, output);
  EXPECT_EQ(split_text(folder / "x.h5", "train"), "train/1.txttrain/2.txt");
  EXPECT_EQ(split_text(folder / "x.h5", "valid"), "validation/3.txt");
  EXPECT_EQ(split_text(folder / "x.h5", "test"), "test/4.txt");
  for (const char* name : {"train-00000-of-00002.txt", "train-00001-of-00002.txt", "test-00000-of-00001.txt"})
    put_file(folder / ("shards/" + std::string(name)), bytes_of(name));
  prepare_bytes({{folder / "shards"}}, output);
  EXPECT_EQ(split_text(folder / "x.h5", "train"), "train-00000-of-00002.txttrain-00001-of-00002.txt");
}

TEST(NamedSplits, AreNotSeenInOtherFolders) {
  const Folder folder;
  const auto joined = [&](const std::vector<std::string>& names, const std::string& split = "") {
    const std::string path = folder / "other";
    std::filesystem::remove_all(path);
    for (const std::string& name : names) put_file(path + "/" + name, bytes_of(name + ";"));
    prepare_bytes({{path}, split}, to(folder / "x.h5", true));
    return Dataset::open(folder / "x.h5")->info().split.starts_with("by the inputs given");
  };
  EXPECT_TRUE(joined({"a.train.txt", "a.test.txt"}));
  EXPECT_FALSE(joined({"train.py", "test.py", "model.py"})) << "a program";
  EXPECT_FALSE(joined({"train.txt", "test.md"})) << "unlike names";
  EXPECT_FALSE(joined({"train.txt", "notes.csv"})) << "one split";
  EXPECT_NE(all_text(folder / "x.h5").find("notes.csv;"), std::string::npos);
  EXPECT_FALSE(joined({"training.txt", "contest.txt"})) << "words within words";
  EXPECT_FALSE(joined({"train/a", "test.txt"})) << "a folder and a file";
  EXPECT_FALSE(joined({"a.train.txt", "a.test.txt"}, "0.5,0.25,0.25")) << "--split";
}

TEST(Fields, ReachTheCommand) {
  const Folder folder;
  put_file(folder / "a.jsonl", bytes_of(records));
  put_file(folder / "b.jsonl", bytes_of("{\"text\": \"held out\"}\n"));
  const Outcome made = call(fmt::format("prepare bytes --field text --input {} --valid-input {} --output {}",
                                        folder / "a.jsonl", folder / "b.jsonl", folder / "x.h5"));
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_EQ(split_text(folder / "x.h5", "valid"), "held out\n");
  const Outcome refused =
      call(fmt::format("prepare bytes --field body --input {} --output {}", folder / "a.jsonl", folder / "y.h5"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("a.jsonl:1: has no field 'body'; choose from id, text, meta"), std::string::npos)
      << refused.text;
}

}  // namespace
}  // namespace longstride::fields_test
