// `prepare bytes --labels`: the labels of documents, and the splits that documents go to whole.
#include <cstring>
#include <map>

#include "datasets/hdf5/stored_array.h"
#include "datasets/objectives/of_rows.h"
#include "datasets/prepare/documents/labels.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride::labels_test {
namespace {

using Numbers = std::vector<std::uint16_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

DocumentLabels table(const std::string& text, const std::string& given = "") {
  return DocumentLabels::of_table(text, "l.tsv", given);
}

TEST(LabelTable, ClassesAreNumberedByValueOrName) {
  DocumentLabels labels = table("a\t10\r\nb\t9\r\n\r\nc\tcat\r\n d \tant");
  EXPECT_EQ(labels.kind(), LabelsAre::classes);
  EXPECT_EQ(labels.names(), (std::vector<std::string>{"9", "10", "ant", "cat"}));
  EXPECT_EQ(labels.of("a", "x"), Numbers{1});
  EXPECT_EQ(labels.of("d", "x"), Numbers{2});
  EXPECT_EQ(table("a\tx\nb\ty", "z,y,x").of("a", "x"), Numbers{2});
  EXPECT_FALSE(labels.wide());
  std::string many;
  for (int i = 0; i < 257; ++i) many += fmt::format("d{}\tc{}\n", i, i);
  EXPECT_TRUE(table(many).wide());
}

TEST(LabelTable, SeveralLabelsHoldEachByItself) {
  DocumentLabels labels = table("a\tx, y\nb\ty\nc\t\n");
  EXPECT_EQ(labels.kind(), LabelsAre::labels);
  EXPECT_EQ(labels.of("a", "1"), (Numbers{1, 1}));
  EXPECT_EQ(labels.of("b", "2"), (Numbers{0, 1}));
  EXPECT_EQ(labels.of("c", "3"), (Numbers{0, 0}));
}

TEST(LabelTable, SpansAreWhereAnswersBeginAndEnd) {
  DocumentLabels labels = table("a\t3-17\nb\t0-0\n");
  EXPECT_EQ(labels.kind(), LabelsAre::spans);
  EXPECT_TRUE(labels.wide());
  EXPECT_EQ(labels.of("a", "1"), (Numbers{3, 17}));
  labels.check_length("a", 17);
  expect_user_error([&] { labels.check_length("a", 16); }, "l.tsv:1: the span 3-17 of document 'a' ends behind its 16");
  expect_user_error([] { table("a\t3-2\n"); }, "l.tsv:1: document 'a' has the span 3-2");
  expect_user_error([] { table("a\t3-65536\n"); }, "l.tsv:1: document 'a' has the span 3-65536");
  EXPECT_EQ(table("a\t3-17\nb\tx\n").kind(), LabelsAre::classes);
}

TEST(LabelTable, GroupsHaveNumbers) {
  DocumentLabels labels = DocumentLabels::of_groups("a\t0 3 1\r\nb\t7\nc\t\n", "g.tsv");
  EXPECT_EQ(labels.kind(), LabelsAre::groups);
  EXPECT_EQ(labels.of("a", "1"), (Numbers{0, 3, 1}));
  EXPECT_EQ(labels.of("c", "1"), Numbers{});
  labels.check_groups("a", 3);
  expect_user_error([&] { labels.check_groups("a", 2); }, "g.tsv:1: document 'a' has 3 labels of groups, but 2 groups");
  for (const char* wrong : {"x", "0  1", "-1", "65536", "1,2", "01"})
    expect_user_error([&] { DocumentLabels::of_groups(std::string("a\t1\nb\t") + wrong, "g.tsv"); },
                      "g.tsv:2: document 'b' has the label '");
}

TEST(LabelTable, RefusesByLine) {
  const auto refuses = [](const std::string& text, const std::string& sentence, const std::string& given = "") {
    expect_user_error([&] { table(text, given); }, sentence);
  };
  refuses("a\tx\nb", "l.tsv:2: is 'b', but a line is the name of a document, a tab, and its class");
  refuses("a\tx\n\ty\n", "l.tsv:2: is '\\ty', but a line is");
  refuses("a\tx\ty\n", "l.tsv:1: is 'a\\tx\\ty', but a line is");
  refuses("a\tx\nb\ty\na\tx\n", "l.tsv:3: has document 'a' a second time, after line 1");
  refuses("a\tx,x\n", "l.tsv:1: document 'a' has the label 'x' twice");
  refuses("a\tx,,y\n", "l.tsv:1: document 'a' has a label without a name");
  refuses("a\tx\nb\tx\n", "l.tsv: has only the class 'x', but classes are told apart from at least two");
  refuses("\n", "l.tsv: is empty; each line is the name of a document");
  refuses(
      "\xEF\xBB\xBF"
      "a\tx,x\n",
      "l.tsv:1: document 'a' has the label 'x' twice");
  for (const std::string wrong : {"9", "", "3-99999999999"})
    refuses("a\t3-9\nb\t4-9\nc\t" + wrong + "\n", "l.tsv:3: has '" + wrong + "', but most lines have spans");
  refuses("a\t\n", "l.tsv: has 0 labels, but there may be 1 to 4,096");
  refuses("a\tx\nb\tz\n", "l.tsv:2: has the class 'z', but --classes is x, y; add it there", "x,y");
  refuses("a\tx\nb\tz\n", "--classes is 'x,x', but names must", "x,x");
  std::string many = "a\t0";
  for (int i = 1; i < 4097; ++i) many += fmt::format(",{}", i);
  refuses(many, "l.tsv: has 4,097 labels, but there may be 1 to 4,096");
}

TEST(LabelTable, EachLineIsOneDocument) {
  DocumentLabels labels = table("a\tx\nb\ty\n");
  labels.of("b", "f.fa:1");
  expect_user_error([&] { labels.of("c", "f.fa:4"); }, "f.fa:4: document 'c' is not in l.tsv; give it a line there");
  expect_user_error([&] { labels.of("b", "f.fa:7"); }, "f.fa:7: document 'b' has the name of that in f.fa:1");
  expect_user_error([&] { labels.finish(); }, "l.tsv:1: names document 'a', which the input lacks");
}

TEST(LabelTable, FoldersAreTheFirstInWhichFilesDiffer) {
  DocumentLabels labels = DocumentLabels::of_folders({"top/fs/a.c", "top/net/x/b.c", "top/fs/y/c.c"}, "");
  EXPECT_EQ(labels.names(), (std::vector<std::string>{"fs", "net"}));
  EXPECT_EQ(labels.of("top/fs/y/c.c", ""), Numbers{0});
  EXPECT_EQ(labels.of("top/net/x/b.c", ""), Numbers{1});
  EXPECT_EQ(labels.of("top/net/x/b.c", ""), Numbers{1});  // a file may hold several documents
  labels.finish();
  expect_user_error(
      [] {
        DocumentLabels::of_folders({"a.c", "fs/b.c"}, "");
      },
      "a.c: is in no folder that could be its");
  expect_user_error([] { DocumentLabels::of_folders({"top/a.c", "top/b.c"}, ""); }, "is in no folder");
  expect_user_error(
      [] {
        DocumentLabels::of_folders({"fs/b.c", "mm/c.c"}, "fs,net");
      },
      "mm/c.c: has the class 'mm', but --classes is fs, net");
}

// Any bytes are a table or an error.
TEST(LabelTable, SurvivesGarbageAndTruncation) {
  const std::string whole = "a\tx,y\nb\tz\nc\t\n12\t3-4\n";
  int read = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::string text = whole.substr(0, seed % (whole.size() + 1));
    for (const std::uint8_t byte : random_bytes(seed % 9, seed))
      text[byte % std::max<std::size_t>(1, text.size())] = "\t\n,-3ab\r\0\xff"[byte % 10];
    try {
      DocumentLabels labels = table(text);
      ++read;
      EXPECT_LE(labels.names().size(), 8u);
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(read, 100);
}

// Documents of a split with their labels.
std::vector<std::pair<std::string, Numbers>> labelled(const Dataset& dataset, const std::string& split) {
  DataConfig config;
  config.documents = Documents::rows;
  const auto set = dataset.split(split, config);
  std::vector<std::pair<std::string, Numbers>> out;
  for (std::int64_t s = 0; s < set->sequences(); ++s) {
    std::string text(static_cast<std::size_t>(set->length(s)), '\0');
    set->read(s, 0, set->length(s), reinterpret_cast<std::uint8_t*>(text.data()));
    const auto labels = set->labels(s);
    out.emplace_back(text, Numbers(labels.begin(), labels.end()));
  }
  return out;
}

// 200 files in two folders; copies of the first are in the other one.
void put_sources(const Folder& folder) {
  for (int i = 0; i < 200; ++i)
    put_file(folder / fmt::format("in/{}/x/{}.c", i % 2 == 0 ? "fs" : "net", i),
             bytes_of(fmt::format("file {}\n", i % 190)));
}

TEST(PrepareLabels, FoldersAreClassesAndFilesStayWhole) {
  const Folder folder;
  put_sources(folder);
  const Outcome made =
      call(fmt::format("prepare bytes --input {0}/in --documents files --labels folder --split 0.5,0.25,0.25 "
                       "--output {0}/x.h5",
                       folder.path()));
  ASSERT_EQ(made.code, 0) << made.text;
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().label_names, (std::vector<std::string>{"fs", "net"}));
  std::map<std::string, std::string> split_of;
  std::size_t count = 0;
  for (const char* split : split_names)
    for (const auto& [text, labels] : labelled(*dataset, split)) {
      ++count;
      const int number = std::stoi(text.substr(5));
      EXPECT_TRUE(number < 10 || labels == Numbers{static_cast<std::uint16_t>(number % 2)}) << text;
      EXPECT_EQ(split_of.emplace(text, split).first->second, split) << "copies of " << text;
    }
  EXPECT_EQ(count, 200u);
  const std::int64_t train = dataset->size("train").sequences, test = dataset->size("test").sequences;
  EXPECT_NEAR(static_cast<double>(train), 100, 25);
  EXPECT_NEAR(static_cast<double>(test), 50, 20);
  const Outcome shown = call(fmt::format("info {}/x.h5", folder.path()));
  EXPECT_NE(shown.text.find("documents, labelled"), std::string::npos) << shown.text;
  EXPECT_NE(shown.text.find("labels  2 classes: fs, net"), std::string::npos) << shown.text;
  check_answered(*dataset->split("train", {DataKind::bytes, "", 8, false, DataOrder::windows, Documents::rows}),
                 Classes(2), "x.h5");
}

TEST(PrepareLabels, ASeedDividesAtRandomAndRepeats) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {}\n", i);
  put_file(folder / "a.txt", bytes_of(text));
  const auto train = [&](std::uint64_t seed) {
    PrepareBytesConfig config;
    config.inputs = {folder / "a.txt"};
    config.documents.documents = DocumentsAre::lines;
    config.seed = seed;
    prepare_bytes(config, to(folder / "x.h5", true));
    return labelled(*Dataset::open(folder / "x.h5"), "train");
  };
  const auto one = train(1);
  EXPECT_EQ(one, train(1));
  EXPECT_NE(one, train(2));
  EXPECT_NEAR(static_cast<double>(one.size()), 270, 20);
}

TEST(PrepareLabels, TablesNameRecordsFilesAndNumbers) {
  const Folder folder;
  put_file(folder / "a.fa", bytes_of(">r1 words\nACGT\n>r2\nTTTT\n"));
  put_file(folder / "fa.tsv", bytes_of("r2\tyes\nr1\tno\n"));
  put_file(folder / "in/s/b.txt", bytes_of("bbb"));
  put_file(folder / "in/c.txt", bytes_of("ccc"));
  put_file(folder / "files.tsv", bytes_of("s/b.txt\tx,y\nc.txt\t\n"));
  put_file(folder / "lines.txt", bytes_of("one\ntwo\n"));
  put_file(folder / "lines.tsv", bytes_of("1\t0-3\n2\t1-1\n"));
  const auto prepared = [&](const std::string& options) {
    const Outcome made =
        call(fmt::format("prepare bytes {1} --split 1.0,0 --force --output {0}/x.h5", folder.path(), options));
    EXPECT_EQ(made.code, 0) << made.text;
    return labelled(*Dataset::open(folder / "x.h5"), "train");
  };
  using Found = std::vector<std::pair<std::string, Numbers>>;
  EXPECT_EQ(prepared(fmt::format("--input {0}/a.fa --documents fasta --labels {0}/fa.tsv", folder.path())),
            (Found{{"ACGT", {0}}, {"TTTT", {1}}}));
  EXPECT_EQ(prepared(fmt::format("--input {0}/in --documents files --labels {0}/files.tsv", folder.path())),
            (Found{{"ccc", {0, 0}}, {"bbb", {1, 1}}}));
  EXPECT_EQ(prepared(fmt::format("--input {0}/lines.txt --documents lines --labels {0}/lines.tsv", folder.path())),
            (Found{{"one\n", {0, 3}}, {"two\n", {1, 1}}}));
}

// The numbers of groups in the order of the groups, split by split.
TEST(PrepareLabels, GroupsHaveTheNumbersOfATable) {
  const Folder folder;
  std::string text, table, classes;
  for (int i = 0; i < 60; ++i) {
    text += std::to_string(i);
    table += fmt::format("{}\t", i + 1);
    for (int g = 0; g <= i % 4; ++g) {
      text += fmt::format(" group {}. ", g);
      table += fmt::format("{}{}", g > 0 ? " " : "", 10 * i + g);
    }
    text += "|";
    table += "\n";
    classes += fmt::format("{}\t{}\n", i + 1, i % 2);
  }
  put_file(folder / "a.txt", bytes_of(text));
  put_file(folder / "g.tsv", bytes_of(table));
  put_file(folder / "c.tsv", bytes_of(classes));
  const std::string options = fmt::format(
      "prepare bytes --input {0}/a.txt --documents marks --mark '|' --groups sentences --group-labels {0}/g.tsv "
      "--split 0.6,0.2,0.2 --force --output {0}/x.h5",
      folder.path());
  const Outcome made = call(options + " --labels " + (folder / "c.tsv"));
  ASSERT_EQ(made.code, 0) << made.text;
  const auto dataset = Dataset::open(folder / "x.h5");
  const auto input = std::make_shared<const Hdf5Input>(std::make_shared<const FileBlob>(folder / "x.h5"));
  std::size_t documents = 0;
  for (const std::string split : split_names) {
    const Bytes stored = StoredArray(input, split + "_group_labels", {1, 2}).read_all();
    Numbers expected, found(stored.size() / 2);
    std::memcpy(found.data(), stored.data(), stored.size());
    for (const auto& [document, labels] : labelled(*dataset, split)) {
      const int i = std::stoi(document);
      for (int g = 0; g <= i % 4; ++g) expected.push_back(static_cast<std::uint16_t>(10 * i + g));
      EXPECT_EQ(labels, Numbers{static_cast<std::uint16_t>(i % 2)});
      ++documents;
    }
    EXPECT_EQ(found, expected) << split;
    EXPECT_EQ(dataset->size(split).groups, std::ssize(expected)) << split;
  }
  EXPECT_EQ(documents, 60u);
  put_file(folder / "g.tsv", bytes_of(table + "61\t1\n"));
  EXPECT_NE(call(options).text.find("g.tsv:61: names document '61', which the input lacks"), std::string::npos);
}

TEST(PrepareLabels, RefusesWhatItCannotLabel) {
  const Folder folder;
  put_sources(folder);
  put_file(folder / "one.tsv", bytes_of("fs/x/0.c\ta\nnet/x/1.c\tb\n"));
  const auto refuses = [&](const std::string& options, const std::string& sentence) {
    const Outcome outcome =
        call(fmt::format("prepare bytes --input {0}/in {1} --output {0}/x.h5", folder.path(), options));
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_NE(outcome.text.find(sentence), std::string::npos) << outcome.text;
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  };
  refuses("--labels folder", "--labels gives documents labels, but --documents does not say where these end");
  refuses("--group-labels g.tsv --documents files",
          "--group-labels labels groups, but --groups does not say where these end");
  refuses("--group-labels g.tsv", "--group-labels labels groups of documents, but --documents does not say");
  refuses("--seed 2", "--seed divides documents, but --documents does not say where these end");
  refuses("--documents files --labels folder --split 100,50,50",
          "--split is 100,50,50, but --labels divides documents at random; give fractions");
  refuses("--documents files --labels " + (folder / "none.tsv"), "none.tsv: is no file; name a table of documents");
  refuses("--documents files --labels " + (folder / "one.tsv"), "document 'fs/x/10.c' is not in");
  refuses("--documents files --classes a,b", "--classes requires --labels");
  put_file(folder / "few.txt", bytes_of("a\nb\n"));
  const Outcome few = call(fmt::format(
      "prepare bytes --input {0}/few.txt --documents lines --seed 1 --split 0.98,0.01,0.01 --output {0}/x.h5",
      folder.path()));
  EXPECT_NE(few.text.find("has 2 documents, of which --split 0.98,0.01,0.01 leaves none for"), std::string::npos)
      << few.text;
}

}  // namespace
}  // namespace longstride::labels_test
