// Files of 16-bit ids: nanoGPT's, and llm.c's with a header.
#include <fmt/format.h>

#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "kernels/base/ids.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

Bytes bytes_of(const std::vector<std::uint16_t>& ids) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(ids.data());
  return {begin, begin + 2 * ids.size()};
}

std::vector<std::uint16_t> counted_ids(int count, int below) {
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<std::uint16_t>(i * 7 % below));
  return ids;
}

Bytes with_header(const std::vector<std::uint16_t>& ids, std::int32_t version = 1, std::int32_t more = 0) {
  Bytes out(1024);
  const std::int32_t header[] = {20240520, version, static_cast<std::int32_t>(std::ssize(ids)) + more};
  std::memcpy(out.data(), header, sizeof header);
  const Bytes content = bytes_of(ids);
  out.insert(out.end(), content.begin(), content.end());
  return out;
}

PrepareTokensConfig of_files(const std::vector<std::string>& inputs, std::int64_t vocabulary) {
  PrepareTokensConfig config;
  config.inputs = inputs;
  config.vocabulary = vocabulary;
  return config;
}

std::vector<std::uint16_t> ids_of(const Dataset& dataset, const std::string& split) {
  const auto set = dataset.split(split);
  std::vector<std::uint16_t> ids(static_cast<std::size_t>(set->length(0)));
  Bytes bytes(ids.size() * static_cast<std::size_t>(set->token_bytes()));
  set->read(0, 0, set->length(0), bytes.data());
  const kernels::Ids all{bytes.data(), set->token_bytes() == 2};
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint16_t>(all[static_cast<std::int64_t>(i)]);
  return ids;
}

TEST(PrepareIds, ReadsFilesWithAndWithoutHeader) {
  const Folder folder;
  const std::vector<std::uint16_t> train = counted_ids(300, 50257), valid = counted_ids(90, 40000);
  put_file(folder / "train.bin", bytes_of(train));
  put_file(folder / "val.bin", with_header(valid));
  PrepareTokensConfig config = of_files({folder / "train.bin"}, 50257);
  config.valid_inputs = {folder / "val.bin"};
  prepare_tokens(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().vocabulary, 50257);
  EXPECT_EQ(dataset->split("train")->token_bytes(), 2);
  EXPECT_EQ(dataset->split("train")->bytes_per_token(), 0);  // their text is not known
  EXPECT_EQ(ids_of(*dataset, "train"), train);
  EXPECT_EQ(ids_of(*dataset, "valid"), valid);
  EXPECT_EQ(dataset->size("test").bytes, 0);
  dataset->verify();
}

TEST(PrepareIds, DividesFilesInOrderAndKeepsOneByteForSmallVocabularies) {
  const Folder folder;
  const std::vector<std::uint16_t> all = counted_ids(100, 200);
  put_file(folder / "a.bin", bytes_of(std::vector<std::uint16_t>{all.begin(), all.begin() + 70}));
  put_file(folder / "b.bin", bytes_of(std::vector<std::uint16_t>{all.begin() + 70, all.end()}));
  PrepareTokensConfig config = of_files({folder / "a.bin", folder / "b.bin"}, 200);
  config.split = "60,30,10";
  prepare_tokens(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->split("train")->token_bytes(), 1);
  EXPECT_EQ(ids_of(*dataset, "train"), std::vector<std::uint16_t>(all.begin(), all.begin() + 60));
  EXPECT_EQ(ids_of(*dataset, "valid"), std::vector<std::uint16_t>(all.begin() + 60, all.begin() + 90));
  EXPECT_EQ(ids_of(*dataset, "test"), std::vector<std::uint16_t>(all.begin() + 90, all.end()));
}

TEST(PrepareIds, RefusesWhatIsNone) {
  const Folder folder;
  const std::vector<std::uint16_t> ids = counted_ids(50, 300);
  Bytes odd = bytes_of(ids);
  odd.push_back(1);
  put_file(folder / "odd.bin", odd);
  put_file(folder / "empty.bin", with_header({}));
  put_file(folder / "lie.bin", with_header(ids, 1, 1));
  put_file(folder / "later.bin", with_header(ids, 2));
  Bytes cut = with_header(ids);
  cut.resize(600);
  put_file(folder / "cut.bin", cut);
  put_file(folder / "beyond.bin", bytes_of(ids));
  put_file(folder / "text.txt", {'a', 'b'});
  const auto refuse = [&](const std::vector<std::string>& names, std::int64_t vocabulary, const char* part) {
    std::vector<std::string> inputs;
    for (const std::string& name : names) inputs.push_back(folder / name);
    expect_user_error([&] { prepare_tokens(of_files(inputs, vocabulary), to(folder / "x.h5")); }, part);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    EXPECT_FALSE(folder.holds_temporaries());
  };
  refuse({"odd.bin"}, 300, "101 bytes");
  refuse({"empty.bin"}, 300, "has no ids");
  refuse({"lie.bin"}, 300, "51 ids");
  refuse({"later.bin"}, 300, "version 2");
  refuse({"cut.bin"}, 300, "50 ids");
  refuse({"beyond.bin"}, 290, "id number 42 (at byte 84) is 294");
  refuse({"beyond.bin"}, 0, "--vocabulary is missing");
  refuse({"beyond.bin", "text.txt"}, 300, "is no .bin file of ids");
}

// Another program may have written more than it says.
TEST(PrepareIds, ReadingRefusesIdsBeyondTheVocabulary) {
  for (const std::int64_t vocabulary : {200, 300}) {
    const Folder folder;
    DatasetInfo info;
    info.kind = DataKind::tokens;
    info.vocabulary = vocabulary;
    DatasetWriter writer(folder / "x.h5", info, false);
    const std::vector<std::uint16_t> ids = {1, 2, static_cast<std::uint16_t>(vocabulary), 3};
    writer.append_tokens(SplitId::train, ids, 0);
    writer.commit("none");
    const auto set = Dataset::open(folder / "x.h5")->split("train");
    Bytes out(8);
    set->read(0, 0, 2, out.data());
    expect_user_error([&] { set->read(0, 1, 3, out.data()); }, fmt::format("token 2 is {}", vocabulary).c_str());
  }
}

}  // namespace
}  // namespace longstride
