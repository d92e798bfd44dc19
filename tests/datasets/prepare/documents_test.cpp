// `prepare bytes --documents`: where documents and their groups end.
#include <algorithm>

#include "datasets/prepare/documents/document_cutter.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride::documents_test {
namespace {

using Texts = std::vector<std::string>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

DocumentRule by(DocumentsAre documents, GroupsAre groups = GroupsAre::none, const std::string& mark = "<|endoftext|>") {
  return {documents, mark, groups};
}

PrepareBytesConfig config_of(const std::vector<std::string>& inputs, const DocumentRule& rule,
                             const std::string& split = "1.0,0") {
  PrepareBytesConfig config;
  config.inputs = inputs;
  config.split = split;
  config.documents = rule;
  return config;
}

// A split's documents.
Texts documents_of(const Dataset& dataset, const std::string& split) {
  DataConfig config;
  config.documents = Documents::rows;
  const auto set = dataset.split(split, config);
  Texts out;
  for (std::int64_t s = 0; s < set->sequences(); ++s) {
    std::string text(static_cast<std::size_t>(set->length(s)), '\0');
    set->read(s, 0, set->length(s), reinterpret_cast<std::uint8_t*>(text.data()));
    out.push_back(text);
  }
  return out;
}

// The documents of one file, and its groups.
Texts documents_in(const std::string& text, const DocumentRule& rule, const std::string& split = "1.0,0") {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of(text));
  prepare_bytes(config_of({folder / "a.txt"}, rule, split), to(folder / "x.h5"));
  return documents_of(*Dataset::open(folder / "x.h5"), "train");
}

Texts groups_in(const std::string& text, GroupsAre groups, DocumentsAre documents = DocumentsAre::files,
                const std::string& mark = "<|endoftext|>") {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of(text));
  prepare_bytes(config_of({folder / "a.txt"}, by(documents, groups, mark)), to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  const Bytes all = whole_split(*dataset, "train");
  Texts out;
  std::int64_t begin = 0;
  for (const std::int64_t end : dataset->groups("train")) {
    if (end > begin) out.emplace_back(all.begin() + begin, all.begin() + end);
    begin = end;
  }
  return out;
}

TEST(Documents, EndAtMarksWhichAreRemoved) {
  const auto marks = by(DocumentsAre::marks);
  EXPECT_EQ(documents_in("one<|endoftext|>two\n<|endoftext|>", marks), (Texts{"one", "two\n"}));
  EXPECT_EQ(documents_in("<|endoftext|><|endoftext|>a<|endoftext|>b", marks), (Texts{"a", "b"}));
  EXPECT_EQ(documents_in("<<|endoftext|<|endoftext|>|endoftext|>", marks), (Texts{"<<|endoftext|", "|endoftext|>"}));
}

// Marks that begin again within themselves, in pieces of every size.
TEST(Documents, FindMarksWhateverPiecesTheyComeIn) {
  const Folder folder;
  for (const std::string mark : {"a", "aa", "aab", "abab", "abacab"})
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      std::string text;
      for (const std::uint8_t byte : random_bytes(200, seed)) text += static_cast<char>('a' + byte % 3);
      Texts expected;
      for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(mark, at), text.size());
        if (end > at) expected.push_back(text.substr(at, end - at));
        at = end + mark.size();
      }
      const DocumentRule rule = by(DocumentsAre::marks, GroupsAre::none, mark);
      DatasetWriter writer(folder / "x.h5", {}, true);
      DocumentCutter cutter(writer, rule);
      const std::int64_t piece = 1 + static_cast<std::int64_t>(seed) % 7;
      for (std::int64_t at = 0; at < 200; at += piece)
        cutter.append(SplitId::train, reinterpret_cast<const std::uint8_t*>(text.data()) + at,
                      std::min<std::int64_t>(piece, 200 - at));
      cutter.end_file();
      writer.commit("all");
      EXPECT_EQ(documents_of(*Dataset::open(folder / "x.h5"), "train"), expected) << mark << " in " << text;
    }
}

TEST(Documents, EndWithLinesAndFiles) {
  EXPECT_EQ(documents_in("a\n\nbc\nd", by(DocumentsAre::lines)), (Texts{"a\n", "\n", "bc\n", "d"}));
  const Folder folder;
  put_file(folder / "in/a", bytes_of("first\n"));
  put_file(folder / "in/b", bytes_of("second"));
  put_file(folder / "in/c", bytes_of("third\nfile"));
  prepare_bytes(config_of({folder / "in"}, by(DocumentsAre::files)), to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(documents_of(*dataset, "train"), (Texts{"first\n", "second", "third\nfile"}));
  EXPECT_EQ(dataset->info().documents, "files");
  EXPECT_EQ(dataset->size("train").sequences, 3);
  // A file ends its last document, whatever the rule.
  prepare_bytes(config_of({folder / "in"}, by(DocumentsAre::lines)), to(folder / "x.h5", true));
  EXPECT_EQ(documents_of(*Dataset::open(folder / "x.h5"), "train"), (Texts{"first\n", "second", "third\n", "file"}));
}

// No byte is lost, and what a split cuts are two documents.
TEST(Documents, ASplitCutsOneIntoTwo) {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of("aaaa#bbbb#cccc#"));
  for (std::int64_t first = 1; first < 14; ++first) {
    const std::string split = fmt::format("{},{},0", first, 15 - first);
    prepare_bytes(config_of({folder / "a.txt"}, by(DocumentsAre::marks, GroupsAre::none, "#"), split),
                  to(folder / "x.h5", true));
    const auto dataset = Dataset::open(folder / "x.h5");
    std::string all;
    for (const char* name : split_names)
      for (const std::string& document : documents_of(*dataset, name)) {
        EXPECT_EQ(document, std::string(document.size(), document.front())) << split;
        all += document;
      }
    EXPECT_EQ(all, "aaaabbbbcccc");
    const bool cuts = first % 5 != 0 && first % 5 != 4;
    EXPECT_EQ(documents_of(*dataset, "train").size() + documents_of(*dataset, "valid").size(), cuts ? 4u : 3u) << split;
  }
}

TEST(Documents, AMarkThatASplitCutsIsRemovedWhole) {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of("one<|endoftext|>two<|endo"));
  for (std::int64_t first = 1; first < 25; ++first) {
    const std::string split = fmt::format("{},{},0", first, 25 - first);
    prepare_bytes(config_of({folder / "a.txt"}, by(DocumentsAre::marks), split), to(folder / "x.h5", true));
    const auto dataset = Dataset::open(folder / "x.h5");
    std::string all;
    for (const char* name : split_names)
      for (const std::string& document : documents_of(*dataset, name)) all += document;
    EXPECT_EQ(all, "onetwo<|endo") << split;
  }
}

TEST(Documents, ParagraphsEndBeforeTheLineAfterBlankOnes) {
  EXPECT_EQ(groups_in("\n a\nb\n\n \t\nc\r\n\r\n  d", GroupsAre::paragraphs),
            (Texts{"\n a\nb\n\n \t\n", "c\r\n\r\n", "  d"}));
  EXPECT_EQ(groups_in("a\n\nb\nc\n\n", GroupsAre::paragraphs, DocumentsAre::lines),
            (Texts{"a\n", "\n", "b\n", "c\n", "\n"}));
}

TEST(Documents, SentencesEndBehindStopsAndWhiteSpace) {
  EXPECT_EQ(groups_in("It is 3.5 m. \"Really?\" Yes!)\nHeading\n\nNo stop", GroupsAre::sentences),
            (Texts{"It is 3.5 m. ", "\"Really?\" ", "Yes!)\n", "Heading\n\n", "No stop"}));
}

TEST(Documents, TitleAndLeadAreTheFirstTwoParagraphs) {
  EXPECT_EQ(groups_in("\nTitle\n\nLead.\nMore.\n\nRest.\n\nRest.", GroupsAre::lead),
            (Texts{"\nTitle\n\n", "Lead.\nMore.\n\n", "Rest.\n\nRest."}));
  EXPECT_EQ(groups_in("A\n\nB\n\nC\n\nD|E\n\nF", GroupsAre::lead, DocumentsAre::marks, "|"),
            (Texts{"A\n\n", "B\n\n", "C\n\nD", "E\n\n", "F"}));
}

TEST(Documents, GroupsEndWhereDocumentsDo) {
  EXPECT_EQ(groups_in("One. Two<|endoftext|>three. Four", GroupsAre::sentences, DocumentsAre::marks),
            (Texts{"One. ", "Two", "three. ", "Four"}));
}

TEST(Documents, RefusesRulesThatSayNothing) {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of("some text"));
  const auto refuses = [&](const DocumentRule& rule, const std::string& sentence) {
    expect_user_error([&] { prepare_bytes(config_of({folder / "a.txt"}, rule), to(folder / "x.h5")); }, sentence);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    EXPECT_FALSE(folder.holds_temporaries());
  };
  refuses(by(DocumentsAre::marks),
          "has no mark '<|endoftext|>', at which documents would end; name another with --mark");
  refuses(by(DocumentsAre::marks, GroupsAre::none, ""), "--mark is empty");
  refuses(by(DocumentsAre::joined, GroupsAre::sentences), "--groups divides documents, but --documents does not say");
}

TEST(Documents, ATextWithoutThemIsWhole) {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of("some text"));
  prepare_bytes(config_of({folder / "a.txt"}, {}), to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  DataConfig config;
  EXPECT_EQ(dataset->split("train", config)->sequences(), 1);
  config.documents = Documents::separate;
  expect_user_error([&] { dataset->split("train", config); },
                    "has not kept where documents end in 'train', but data.documents is separate; prepare it with "
                    "--documents marks, files, lines or fasta");
}

// x.h5 in a folder, of lines of random lengths: a byte below `ends` is a line feed.
std::shared_ptr<const Dataset> random_lines(const Folder& folder, std::size_t bytes, std::uint64_t seed, int ends) {
  std::string text;
  for (const std::uint8_t byte : random_bytes(bytes, seed))
    text += byte < ends ? '\n' : static_cast<char>('a' + byte % 20);
  put_file(folder / "a.txt", bytes_of(text));
  prepare_bytes(config_of({folder / "a.txt"}, by(DocumentsAre::lines)), to(folder / "x.h5"));
  return Dataset::open(folder / "x.h5");
}

// The same windows, in the same order, whatever the documents are.
TEST(Documents, SeparateRowsAreThoseOfTheJoinedText) {
  const Folder folder;
  const auto dataset = random_lines(folder, 5000, 3, 20);
  DataConfig config = {DataKind::bytes, folder / "x.h5", 64};
  const auto joined = open_training_data(*dataset, config, 5, 3);
  config.documents = Documents::separate;
  const auto separate = open_training_data(*dataset, config, 5, 3);
  EXPECT_EQ(joined->epoch_rows(), separate->epoch_rows());
  std::vector<std::uint8_t> bytes(3 * 64), same(3 * 64);
  std::vector<std::int32_t> groups(3 * 64);
  for (std::int64_t step = 0; step < 60; ++step) {
    Batch batch{Tensor(bytes.data(), Dtype::u8, {3, 64})};
    joined->read(step, 3, 0, {Tensor(same.data(), Dtype::u8, {3, 64})});
    batch.groups = Tensor(groups.data(), Dtype::i32, {3, 64});
    separate->read(step, 3, 0, batch);
    EXPECT_EQ(bytes, same);
    std::vector<std::int32_t> last(64);  // a row does not depend on those that are read with it
    Batch alone{Tensor(same.data(), Dtype::u8, {1, 64})};
    alone.groups = Tensor(last.data(), Dtype::i32, {1, 64});
    separate->read(step, 3, 2, alone);
    EXPECT_TRUE(std::equal(last.begin(), last.end(), groups.begin() + 2 * 64));
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t at = row * 64 + i;
        EXPECT_EQ(groups[at], i == 0 ? 0 : groups[at - 1] + (bytes[at - 1] == '\n' ? 1 : 0));
      }
  }
}

// Every piece of every document once an epoch, padded with positions of weight 0.
TEST(Documents, RowsArePiecesOfDocuments) {
  const Folder folder;
  const auto dataset = random_lines(folder, 3000, 4, 8);
  DataConfig config = {DataKind::bytes, folder / "x.h5", 32};
  config.documents = Documents::rows;
  const auto rows = open_training_data(*dataset, config, 5, 3);
  Texts expected, found;
  for (const std::string& document : documents_of(*dataset, "train"))
    for (std::size_t at = 0; at < document.size(); at += 32) expected.push_back(document.substr(at, 32));
  ASSERT_EQ(rows->epoch_rows(), std::ssize(expected));
  std::vector<std::uint8_t> bytes(32);
  std::vector<std::int32_t> groups(32);
  std::vector<float> weights(32);
  for (std::int64_t row = 0; row < rows->epoch_rows(); ++row) {
    Batch batch{Tensor(bytes.data(), Dtype::u8, {1, 32})};
    batch.groups = Tensor(groups.data(), Dtype::i32, {1, 32});
    batch.weights = Tensor(weights.data(), Dtype::f32, {1, 32});
    rows->read(row, 1, 0, batch);
    const auto length = static_cast<std::size_t>(std::count(weights.begin(), weights.end(), 1.0f));
    found.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(groups[i], i < length ? 0 : 1);
      EXPECT_EQ(weights[i], i < length ? 1.0f : 0.0f);
    }
  }
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

TEST(PrepareCommand, KeepsDocumentsAndSaysHowMany) {
  const Folder folder;
  put_file(folder / "a.txt", bytes_of("One. Two.<|endoftext|>Three.<|endoftext|>"));
  const Outcome prepared = call(fmt::format(
      "prepare bytes --input {0}/a.txt --split 1.0,0 --documents marks --groups sentences --output {0}/x.h5",
      folder.path()));
  EXPECT_EQ(prepared.code, 0) << prepared.text;
  const Outcome info = call(fmt::format("info {}", folder / "x.h5"));
  EXPECT_NE(info.text.find("15 bytes in 2 documents, 3 groups"), std::string::npos) << info.text;
  EXPECT_NE(info.text.find("documents end with marks <|endoftext|>; groups are sentences"), std::string::npos)
      << info.text;
  const Outcome refused =
      call(fmt::format("prepare bytes --input {0}/a.txt --mark x --output {0}/y.h5", folder.path()));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("--mark is x, but only --documents marks reads it"), std::string::npos) << refused.text;
}

}  // namespace
}  // namespace longstride::documents_test
