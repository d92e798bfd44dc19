// Pieces of a SentencePiece model, read without the library, and text through one.
#include <fmt/format.h>

#include "datasets/prepare/prepare.h"
#include "datasets/tokens/text_ids.h"
#include "datasets/tokens/words.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// type: 0: none is written, which means 1, normal.
std::string piece(const std::string& text, int type = 0) {
  std::string message = field(1, text) + std::string("\x15\0\0\x80\x3f", 5);  // a score
  if (type > 0) message += {static_cast<char>(3 << 3), static_cast<char>(type)};
  return field(1, message);
}

std::string small_model() {
  return piece("<unk>", 2) + piece("<s>", 3) + piece("<0x0A>", 6) + piece("<0xFF>", 6) + piece("\xE2\x96\x81the") +
         piece("a") + piece("\xE2\x96\x81\xE2\x96\x81") + field(2, "settings") + piece("<user>", 4);
}

TEST(PieceTable, SaysWhichTextEveryIdIs) {
  const PieceTable table(small_model(), "m");
  ASSERT_EQ(table.size(), 8);
  const std::vector<std::uint16_t> ids = {4, 5, 2, 1, 6, 7, 3, 0, 99};
  EXPECT_EQ(table.text_of({ids.data(), true}, std::ssize(ids)), " thea\n  <user>\xFF \xE2\x81\x87 ");
  EXPECT_EQ(table.of_byte('\n'), 2);
  EXPECT_EQ(table.of_byte(0xFF), 3);
  EXPECT_EQ(table.of_byte('a'), -1);
  EXPECT_TRUE(table.has_bytes());
  EXPECT_FALSE(table.joins_words());
  EXPECT_TRUE(PieceTable(small_model() + piece("of\xE2\x96\x81the"), "m").joins_words());
}

// Refused, or read; never more than the bytes that are there.
TEST(PieceTable, SurvivesDamage) {
  const std::string whole = small_model();
  int refused = 0;
  const auto read = [&](const std::string& bytes) {
    const std::vector<char> exact(bytes.begin(), bytes.end());  // a sanitizer sees what is read behind its end
    try {
      PieceTable({exact.data(), exact.size()}, "m");
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("m: "), std::string::npos);
      ++refused;
    }
  };
  for (std::size_t length = 0; length < whole.size(); ++length) read(whole.substr(0, length));
  EXPECT_GT(refused, 60);
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int change : {1, 0x7f, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      read(damaged);
    }
  expect_user_error([&] { PieceTable("This is a text, and no model.", "notes.txt"); },
                    "notes.txt: is no SentencePiece");
  std::string many;
  for (int i = 0; i < 65536; ++i) many += piece("a");
  expect_user_error([&] { PieceTable(many, "m"); }, "more than 65535 pieces");
}

TEST(TextCuts, KeepWordsAndCharactersWhole) {
  EXPECT_EQ(first_word("  two words"), 5U);
  EXPECT_EQ(first_word("\nline"), 1U);
  EXPECT_EQ(first_word("line\nand"), 4U);
  EXPECT_EQ(place_to_cut("short", 8, false), 5U);
  EXPECT_EQ(place_to_cut("one two three", 9, false), 7U);
  EXPECT_EQ(place_to_cut("one\ntwo three", 7, true), 4U);
  EXPECT_EQ(place_to_cut("abcd\xC3\xA9\xC3\xA9", 7, false), 6U);
}

std::string sentences() {
  std::string text;
  const char* words[] = {"the ", "wind ", "follows ", "a ", "river ", "in ", "winter", ".\n", "clock ", "once  more "};
  for (int i = 0; i < 6000; ++i) text += words[static_cast<std::size_t>(i * i + i / 7) % 10];
  return text;
}

class TokensOfText : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!encodes_text()) GTEST_SKIP() << "this build lacks SentencePiece";
    put(sentences());
  }
  void put(const std::string& text) const { put_file(folder / "text.txt", Bytes(text.begin(), text.end())); }
  std::shared_ptr<const Dataset> prepare(const PrepareTokensConfig& config, const std::string& name) const {
    prepare_tokens(config, to(folder / name, true));
    EXPECT_FALSE(folder.holds_temporaries());
    return Dataset::open(folder / name);
  }
  PrepareTokensConfig trained(std::int64_t pieces) const {
    PrepareTokensConfig config;
    config.inputs = {folder / "text.txt"};
    config.train_vocabulary = pieces;
    return config;
  }
  static std::string text_of(const Dataset& dataset, const std::string& split) {
    const auto set = dataset.split(split);
    Bytes ids(static_cast<std::size_t>(set->length(0) * set->token_bytes()));
    set->read(0, 0, set->length(0), ids.data());
    return PieceTable(dataset.info().tokenizer, "tokenizer").text_of({ids.data(), true}, set->length(0));
  }
  const Folder folder;
};

TEST_F(TokensOfText, KeepEveryByteOfIt) {
  const std::string odd = sentences() + "  \n\n\xFF\xE2\x96\x81 caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 \xC3" +
                          std::string("\t\r\n") + sentences();
  put(odd);
  PrepareTokensConfig config = trained(330);
  config.split = "1.0,0,0";
  const auto dataset = prepare(config, "x.h5");
  EXPECT_EQ(dataset->info().vocabulary, 330);
  EXPECT_EQ(text_of(*dataset, "train"), odd);
  EXPECT_EQ(dataset->size("train").text_bytes, std::ssize(odd));
  EXPECT_GT(dataset->split("train")->bytes_per_token(), 2);
}

// More words than any table of known ones has places, some of them again.
TEST_F(TokensOfText, KeepWordsApartHoweverMany) {
  const std::string model = prepare(trained(330), "x.h5")->info().tokenizer;
  put_file(folder / "own.model", Bytes(model.begin(), model.end()));
  std::string many;
  for (int i = 0; i < 150000; ++i) many += fmt::format("{} ", i * 7919 % 300007 % 100000);
  put(many);
  PrepareTokensConfig config = trained(0);
  config.model = folder / "own.model";
  config.split = "1.0,0,0";
  EXPECT_EQ(text_of(*prepare(config, "y.h5"), "train"), many);
}

TEST_F(TokensOfText, AreTheSameAgainAndByTheModelThatWasTrained) {
  const auto first = prepare(trained(330), "x.h5"), again = prepare(trained(330), "y.h5");
  EXPECT_EQ(first->info().tokenizer, again->info().tokenizer);
  for (const char* split : split_names) EXPECT_EQ(first->stored_sha256(split), again->stored_sha256(split));
  const std::string& model = first->info().tokenizer;
  put_file(folder / "own.model", Bytes(model.begin(), model.end()));
  PrepareTokensConfig given = trained(0);
  given.model = folder / "own.model";
  EXPECT_EQ(prepare(given, "z.h5")->stored_sha256("train"), first->stored_sha256("train"));
  given.vocabulary = 331;
  expect_user_error([&] { prepare_tokens(given, to(folder / "w.h5")); }, "has 330 pieces: it is of another vocabulary");
}

TEST_F(TokensOfText, KeepDocuments) {
  PrepareTokensConfig config = trained(330);
  config.documents.documents = DocumentsAre::lines;
  const auto tokens = prepare(config, "x.h5");
  EXPECT_EQ(tokens->info().tokenizer, prepare(trained(330), "joined.h5")->info().tokenizer);  // from all documents
  PrepareBytesConfig bytes = config;
  prepare_bytes(bytes, to(folder / "bytes.h5"));
  const auto lines = Dataset::open(folder / "bytes.h5");
  EXPECT_EQ(tokens->size("train").sequences, lines->size("train").sequences);
  EXPECT_GT(tokens->size("train").sequences, 100);
  DataConfig rows;
  rows.documents = Documents::rows;
  const auto one = tokens->split("train", rows);
  Bytes ids(static_cast<std::size_t>(2 * one->length(1)));
  one->read(1, 0, one->length(1), ids.data());
  Bytes line(static_cast<std::size_t>(lines->split("train", rows)->length(1)));
  lines->split("train", rows)->read(1, 0, std::ssize(line), line.data());
  EXPECT_EQ(PieceTable(tokens->info().tokenizer, "m").text_of({ids.data(), true}, one->length(1)),
            std::string(line.begin(), line.end()));
}

// As WikiText and PG-19 come.
TEST_F(TokensOfText, TakeFoldersWithSplitsByName) {
  const auto put_text = [&](const std::string& name, const std::string& text) {
    put_file(folder / name, Bytes(text.begin(), text.end()));
  };
  for (const char* split : split_names) put_text(fmt::format("wiki/wiki.{}.tokens", split), split + sentences());
  put_text("pg/train/1.txt", "train" + sentences());
  put_text("pg/validation/2.txt", "valid" + sentences());
  put_text("pg/test/3.txt", "test" + sentences());
  put_text("pg/metadata.csv", "1,2\n");
  for (const char* from : {"wiki", "pg"}) {
    PrepareTokensConfig config = trained(330);
    config.inputs = {folder / from};
    const auto dataset = prepare(config, "x.h5");
    for (const char* split : split_names) EXPECT_EQ(text_of(*dataset, split), split + sentences()) << from;
  }
}

TEST_F(TokensOfText, RefuseWhatCannotBeDone) {
  expect_user_error([&] { prepare_tokens(trained(0), to(folder / "x.h5")); }, "give one with --model");
  expect_user_error([&] { prepare_tokens(trained(60000), to(folder / "x.h5")); }, "--train-vocabulary is 60000");
  PrepareTokensConfig config = trained(0);
  config.model = folder / "text.txt";
  expect_user_error([&] { prepare_tokens(config, to(folder / "x.h5")); }, "is no SentencePiece model");
  const std::string model = small_model();  // without what the library needs
  put_file(folder / "small.model", Bytes(model.begin(), model.end()));
  config.model = folder / "small.model";
  expect_user_error([&] { prepare_tokens(config, to(folder / "x.h5")); }, "SentencePiece refuses it");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(TokensWithoutSentencePiece, SayWhatToInstall) {
  if (encodes_text()) GTEST_SKIP() << "this build has SentencePiece";
  const Folder folder;
  put_file(folder / "a.txt", {'a', 'b'});
  PrepareTokensConfig config;
  config.inputs = {folder / "a.txt"};
  config.train_vocabulary = 300;
  expect_user_error([&] { prepare_tokens(config, to(folder / "x.h5")); }, "libsentencepiece-dev");
}

}  // namespace
}  // namespace longstride
