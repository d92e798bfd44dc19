// `prepare bytes --documents fasta`: records become documents.
#include <zlib.h>

#include "datasets/prepare/documents/fasta.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride::fasta_test {
namespace {

using Records = std::vector<std::pair<std::string, std::string>>;  // names and letters

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Read in pieces of `piece` bytes.
Records records_in(const std::string& text, std::size_t piece, const std::string& letters = "ACGTN",
                   const std::string& other = "") {
  Records out;
  FastaReader reader(letters, other,
                     {[&](const std::string& name) { out.emplace_back(name, ""); },
                      [&](const std::uint8_t* bytes, std::int64_t count) {
                        EXPECT_GT(count, 0);
                        out.back().second.append(bytes, bytes + count);
                      }});
  reader.begin_file("a.fa");
  for (std::size_t at = 0; at < text.size(); at += piece)
    reader.read(reinterpret_cast<const std::uint8_t*>(text.data()) + at,
                static_cast<std::int64_t>(std::min(piece, text.size() - at)));
  reader.end_file();
  return out;
}

const Records three = {{"one", "ACGTACGT"}, {"two", ""}, {"three", "TTN"}};

TEST(Fasta, RecordsAreTheSameInPiecesOfEverySize) {
  const std::string text = ">one the first\nACGT\n acgt \n\n;a comment\n> two\n>three\t\nTT\nn";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(records_in(text, piece), three) << piece;
}

TEST(Fasta, LinesMayEndInEveryWay) {
  for (const std::string end : {"\n", "\r\n", "\r"})
    for (const bool last : {false, true})
      for (std::size_t piece = 1; piece < 9; ++piece) {
        std::string text;
        for (const char* line : {">one the first", "ACGTAC", "gt", "", ">two", ">three", "TTN"}) text += line + end;
        if (!last) text.resize(text.size() - end.size());
        EXPECT_EQ(records_in(text, piece), three) << piece;
      }
}

TEST(Fasta, OtherLettersAreRefusedByLineOrReplaced) {
  const std::string text = ">a\r\nACGT\r\nACRT\r\n";
  expect_user_error([&] { records_in(text, 5); },
                    "a.fa:3: has 'R', but --letters is ACGTN; add it there, or have letters replaced with "
                    "--other-letters N");
  EXPECT_EQ(records_in(text, 5, "ACGTN", "N"), (Records{{"a", "ACGTACNT"}}));
  EXPECT_EQ(records_in(">p\nmk*-U", 2, "ACDEFGHIKLMNPQRSTVWXY", "X"), (Records{{"p", "MKXXX"}}));
  for (const char* wrong : {"AC1T", "AC>T", "AC\x01T", "AC\xffT"})
    expect_user_error([&] { records_in(std::string(">a\n") + wrong, 3, "ACGTN", "N"); }, "a.fa:2: has '");
}

TEST(Fasta, FilesOfAnotherKindAreRefused) {
  expect_user_error([] { records_in("\n\nACGT\n>a\n", 100); },
                    "a.fa:3: has letters before the first line '>name', with which records of FASTA begin");
  expect_user_error([] { records_in(">" + std::string(5000, 'x'), 64); }, "a.fa:1: has a name of more than 1000");
}

TEST(Fasta, LettersMustBeSomeThatAFileCanHave) {
  expect_user_error([] { records_in("", 1, ""); }, "--letters is empty");
  expect_user_error([] { records_in("", 1, "AC GT"); }, "--letters is 'AC GT', but a space is no letter");
  expect_user_error([] { records_in("", 1, "A>"); }, "'>' is no letter");
  for (const char* other : {"B", "AC"})
    expect_user_error([&] { records_in("", 1, "acg", other); }, "but must be one of --letters ACG");
}

// Any bytes are records or an error, in pieces as in one.
TEST(Fasta, GarbageIsRefusedInPiecesAsInOne) {
  int read = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::string text = ">";
    for (const std::uint8_t byte : random_bytes(1 + seed % 60, seed))
      text += seed % 3 == 0 ? static_cast<char>(byte) : ">;ACgtN\n\r \tab"[byte % 13];
    const auto outcome = [&](std::size_t piece) {
      try {
        Records records = records_in(text, piece);
        ++read;
        return records;
      } catch (const UserError& error) {
        return Records{{"error", error.what()}};
      }
    };
    EXPECT_EQ(outcome(text.size()), outcome(1 + seed % 7)) << text;
  }
  EXPECT_GT(read, 100);
}

std::vector<std::string> documents_of(const Dataset& dataset, const std::string& split) {
  DataConfig config;
  config.documents = Documents::rows;
  const auto set = dataset.split(split, config);
  std::vector<std::string> out;
  for (std::int64_t s = 0; s < set->sequences(); ++s) {
    out.emplace_back(static_cast<std::size_t>(set->length(s)), '\0');
    set->read(s, 0, set->length(s), reinterpret_cast<std::uint8_t*>(out.back().data()));
  }
  return out;
}

void put_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(PrepareFasta, PlainAndPackedFilesBecomeDocuments) {
  const Folder folder;
  put_file(folder / "a.fa", bytes_of(">one\r\nACGTN\r\nacgt\r\n>empty\r\n>two\r\nTT"));
  put_gzip(folder / "b.fa.gz", ">three\nGG\nGG\n>four\nA");
  const Outcome made = call(fmt::format(
      "prepare bytes --input {0}/a.fa {0}/b.fa.gz --documents fasta --split 1.0,0 --output {0}/x.h5", folder.path()));
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_NE(made.text.find("left out 1 record without letters"), std::string::npos) << made.text;
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(documents_of(*dataset, "train"), (std::vector<std::string>{"ACGTNACGT", "TT", "GGGG", "A"}));
  EXPECT_EQ(dataset->info().documents, "records of FASTA");
  const Outcome shown = call(fmt::format("info {}/x.h5", folder.path()));
  EXPECT_NE(shown.text.find("documents end with records of FASTA"), std::string::npos) << shown.text;
}

// Splits divide the bytes of the files, and so a record in two.
TEST(PrepareFasta, SplitsInOrderCutRecords) {
  const Folder folder;
  put_file(folder / "a.fa", bytes_of(">one\nACGTACGTACGT\n"));
  for (int first = 1; first < 18; ++first) {
    PrepareBytesConfig config;
    config.inputs = {folder / "a.fa"};
    config.split = fmt::format("{},{}", first, 18 - first);
    config.documents.documents = DocumentsAre::fasta;
    prepare_bytes(config, to(folder / "x.h5", true));
    const auto dataset = Dataset::open(folder / "x.h5");
    std::string all;
    for (const char* split : split_names)
      for (const std::string& document : documents_of(*dataset, split)) all += document;
    EXPECT_EQ(all, "ACGTACGTACGT") << first;
    EXPECT_EQ(documents_of(*dataset, "train").size(), first > 5 ? 1u : 0u) << first;
  }
}

TEST(PrepareFasta, RefusesWhatItCannotRead) {
  const Folder folder;
  put_file(folder / "a.fa", bytes_of(">one\nACGB\n"));
  put_file(folder / "empty.fa", bytes_of(">one\n>two\n"));
  const auto refuses = [&](const std::string& options, const std::string& sentence) {
    const Outcome outcome = call(fmt::format("prepare bytes {} --output {}/x.h5", options, folder.path()));
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_NE(outcome.text.find(sentence), std::string::npos) << outcome.text;
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    EXPECT_FALSE(folder.holds_temporaries());
  };
  const std::string input = "--input " + (folder / "a.fa");
  refuses(input + " --documents fasta", "a.fa:2: has 'B', but --letters is ACGTN");
  refuses("--input " + (folder / "empty.fa") + " --documents fasta", "has no letters of FASTA");
  refuses(input + " --documents fasta --groups sentences", "--groups divides text, but --documents fasta");
  refuses(input + " --documents lines --letters ACGT",
          "--letters is ACGT, but only --documents fasta reads it; add that, or leave --letters out");
  refuses(input + " --other-letters N", "--other-letters is N, but only --documents fasta reads it");
}

}  // namespace
}  // namespace longstride::fasta_test
