#include "datasets/formats/cifar10.h"

#include <algorithm>

#include "datasets/prepare/prepare.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

// Record i has label i mod 10 and unique pixels.
Bytes records(std::int64_t count, std::uint64_t seed) {
  Bytes out = random_bytes(static_cast<std::size_t>(count * Cifar10::record), seed);
  for (std::int64_t i = 0; i < count; ++i)
    out[static_cast<std::size_t>(i * Cifar10::record)] = static_cast<std::uint8_t>(i % 10);
  return out;
}

Bytes interleaved(const Bytes& batch, std::int64_t i) {
  Bytes out;
  for (std::int64_t pixel = 0; pixel < 1024; ++pixel)
    for (std::int64_t channel = 0; channel < 3; ++channel)
      out.push_back(batch[static_cast<std::size_t>(i * 3073 + 1 + channel * 1024 + pixel)]);
  return out;
}

std::string record_text(const Bytes& pixels, std::int64_t label) {
  return std::string(pixels.begin(), pixels.end()) + static_cast<char>(label);
}

TEST(PrepareCifar10, InterleavesPixelsAndKeepsLabelsAndDivides96To4) {
  const Folder folder;
  const Bytes first = records(150, 1), second = records(100, 2), test = records(40, 3);
  put_file(folder / "data_batch_1.bin", first);
  put_file(folder / "data_batch_2.bin", second);
  put_file(folder / "test_batch.bin", test);
  put_file(folder / "batches.meta.txt", {'c', 'a', 't'});
  PrepareCifar10Config config;
  config.inputs = {folder.path()};
  prepare_cifar10(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().image_bytes(), 3072);
  EXPECT_EQ(dataset->size("train").sequences, 240);
  EXPECT_EQ(dataset->size("valid").sequences, 10);
  EXPECT_EQ(dataset->size("test").sequences, 40);

  std::vector<std::string> wanted, found;  // pixels and label
  for (std::int64_t i = 0; i < 150; ++i) wanted.push_back(record_text(interleaved(first, i), i % 10));
  for (std::int64_t i = 0; i < 100; ++i) wanted.push_back(record_text(interleaved(second, i), i % 10));
  for (const char* name : {"train", "valid"}) {
    const auto images = dataset->split(name);
    const std::vector<std::uint32_t> labels = dataset->labels(name).values;
    ASSERT_EQ(labels.size(), static_cast<std::size_t>(images->sequences()));
    for (std::int64_t i = 0; i < images->sequences(); ++i) {
      Bytes pixels(3072);
      images->read(i, 0, 3072, pixels.data());
      found.push_back(record_text(pixels, labels[static_cast<std::size_t>(i)]));
    }
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  EXPECT_TRUE(found == wanted);
  Bytes last(3072);
  dataset->split("test")->read(39, 0, 3072, last.data());
  EXPECT_EQ(last, interleaved(test, 39));
}

TEST(PrepareCifar10, DividesByTheSeed) {
  const Folder folder;
  put_file(folder / "data_batch_1.bin", records(100, 1));
  const auto valid_of = [&](std::uint64_t seed) {
    PrepareCifar10Config config;
    config.inputs = {folder / "data_batch_1.bin"};
    config.seed = seed;
    prepare_cifar10(config, to(folder / "x.h5", true));
    EXPECT_EQ(Dataset::open(folder / "x.h5")->size("test").bytes, 0);
    return whole_split(*Dataset::open(folder / "x.h5"), "valid");
  };
  EXPECT_EQ(valid_of(1), valid_of(1));
  EXPECT_NE(valid_of(1), valid_of(2));
}

TEST(PrepareCifar10, KnowsItsBatchesByNameWhateverTheCase) {
  const Folder folder;
  put_file(folder / "in/DATA_BATCH_1.BIN", records(100, 1));
  put_file(folder / "in/TEST_BATCH.BIN", records(40, 2));
  for (const std::vector<std::string>& inputs :
       {std::vector<std::string>{folder / "in"}, {folder / "in/TEST_BATCH.BIN", folder / "in/DATA_BATCH_1.BIN"}}) {
    PrepareCifar10Config config;
    config.inputs = inputs;
    prepare_cifar10(config, to(folder / "x.h5", true));
    EXPECT_EQ(Dataset::open(folder / "x.h5")->size("train").sequences, 96);
    EXPECT_EQ(Dataset::open(folder / "x.h5")->size("test").sequences, 40);
  }
}

TEST(PrepareCifar10, RefusesWhatIsNotABatchAndLeavesNothing) {
  const Folder folder;
  const Bytes good = records(20, 1);
  Bytes bad_label = good;
  bad_label[3073 * 7] = 10;
  put_file(folder / "data_batch_1.bin", good);
  put_file(folder / "bad/data_batch_1.bin", bad_label);
  put_file(folder / "hundred.bin", Bytes(3074 * 4, 1));
  put_file(folder / "pickled", {0x80, 2, '}', 'q'});
  put_file(folder / "test_batch.bin", records(5, 2));
  put_file(folder / "none/readme.txt", {1});
  const auto attempt = [&](std::vector<std::string> inputs) {
    return [&folder, inputs] {
      PrepareCifar10Config config;
      config.inputs = inputs;
      prepare_cifar10(config, to(folder / "x.h5"));
    };
  };
  expect_user_error(attempt({folder / "bad"}), "record 7 has the label 10");
  expect_user_error(attempt({folder / "hundred.bin"}), "CIFAR-100");
  expect_user_error(attempt({folder / "pickled"}), "Python version");
  expect_user_error(attempt({folder / "test_batch.bin"}), "nothing to train on");
  expect_user_error(attempt({folder / "none"}), "holds no data_batch_*.bin");
  expect_user_error(attempt({folder / "absent.bin"}), "absent.bin");
  expect_user_error(attempt({folder / "data_batch_1.bin", folder / "data_batch_1.bin"}), "given twice");
  expect_user_error(attempt({"-"}), "-: only `prepare bytes` reads standard input; name a file or a folder");
  expect_user_error(attempt({}), "--input is needed");
  for (std::size_t part = 0; part < 16; ++part) {
    put_file(folder / "cut.bin", cut_short(good, part));
    if (good.size() * part / 16 % 3073 == 0 && part > 0) continue;  // whole records: a smaller set
    expect_user_error(attempt({folder / "cut.bin"}), part == 0 ? "is empty" : "must have a multiple of 3,073");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

}  // namespace
}  // namespace longstride
