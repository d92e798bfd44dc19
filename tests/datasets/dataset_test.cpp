#include "datasets/dataset.h"
#include "datasets/objectives/answer_spans.h"
#include "datasets/objectives/group_classes.h"
#include "datasets/objectives/of_rows.h"

#include <algorithm>
#include <thread>

#include "datasets/hdf5/stored_array.h"
#include "datasets/prepare/dataset_writer.h"
#include "tests/datasets/foreign.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

constexpr SplitId train = SplitId::train, valid = SplitId::valid, test_split = SplitId::test;

DatasetInfo images(std::int64_t side) {
  DatasetInfo info;
  info.kind = DataKind::images;
  info.rows = info.columns = side;
  info.channels = 3;
  return info;
}

DatasetInfo audio() {
  DatasetInfo info;
  info.kind = DataKind::audio;
  info.rate = 12000;
  info.encoding = "mu-law 255";
  return info;
}

// A file with three splits and a source, of about 60 kB.
Bytes write_small(const std::string& path) {
  DatasetWriter writer(path, audio(), true);
  const Bytes sound = random_bytes(30000, 1);
  for (std::size_t s = 0; s < 3; ++s) {
    writer.append(static_cast<SplitId>(s), sound.data(), 10000);
    writer.end_file(static_cast<SplitId>(s));
    writer.append(static_cast<SplitId>(s), sound.data() + 10000, 5000);
    writer.end_file(static_cast<SplitId>(s));
  }
  writer.add_source({"a b.wav", 7, std::string(64, 'a')});
  writer.commit("by hand");
  Bytes out(sound.begin(), sound.begin() + 15000);
  return out;
}

// Everything that a run and `info` read.
Bytes read_everything(const std::string& path) {
  const auto dataset = Dataset::open(path);
  Bytes out;
  for (const char* name : split_names) {
    const auto files = dataset->split(name);
    for (std::int64_t f = 0; f < files->sequences(); ++f) {
      Bytes file(static_cast<std::size_t>(files->length(f)));
      files->read(f, 0, files->length(f), file.data());
      out.insert(out.end(), file.begin(), file.end());
    }
    dataset->stored_sha256(name);
    dataset->labels(name);
  }
  dataset->sources();
  return out;
}

TEST(Dataset, ReadsBackFilesBoundariesAndSources) {
  const Folder folder;
  const Bytes sound = write_small(folder / "x.h5");
  const auto dataset = Dataset::open(folder / "x.h5");
  EXPECT_EQ(dataset->info().split, "by hand");
  EXPECT_EQ(dataset->info().tool_version.substr(0, 11), "longstride ");
  EXPECT_EQ(whole_split(*dataset, "valid"), sound);
  const auto files = dataset->split("test");
  ASSERT_EQ(files->sequences(), 2);
  EXPECT_EQ(files->length(1), 5000);
  Bytes middle(100);
  files->read(1, 40, 100, middle.data());
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), sound.begin() + 10040));
  EXPECT_EQ(dataset->split("test", true)->length(0), 15000);
  EXPECT_EQ(dataset->sources().at(0).name, "a b.wav");
  EXPECT_THROW(files->read(0, 9999, 2, middle.data()), InternalError);
  expect_user_error([&] { dataset->split("tests"); }, "choose train, valid or test");
}

// Reading in place, as for a split too large for memory, gives the same bytes as reading from memory.
TEST(Dataset, ReadsAnyRunOfBytesInPlace) {
  const Folder folder;
  const Bytes pixels = random_bytes(200 * 27, 2);
  {
    DatasetWriter writer(folder / "x.h5", images(3), false);
    writer.append(train, pixels.data(), 100 * 27);
    writer.append(train, pixels.data() + 100 * 27, 100 * 27);
    writer.commit("all");
  }
  const auto file = std::make_shared<const Hdf5Input>(std::make_shared<const FileBlob>(folder / "x.h5"));
  const StoredArray array(file, "train", {2, 1});
  for (const auto& [offset, count] :
       {std::pair{0, 5400}, {27, 27}, {5, 10}, {20, 100}, {26, 2}, {5399, 1}, {54, 81}, {1, 5399}}) {
    Bytes out(static_cast<std::size_t>(count));
    array.read(offset, count, out.data());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), pixels.begin() + offset)) << offset << " + " << count;
  }
  Bytes out(27);
  EXPECT_THROW(array.read(5400, 27, out.data()), InternalError);
}

TEST(Dataset, IsReadByManyThreadsAtOnce) {
  const Folder folder;
  const Bytes sound = write_small(folder / "x.h5");
  const auto dataset = Dataset::open(folder / "x.h5");
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        right[t] += whole_split(*dataset, split_names[t % 3]) == sound ? 1 : 0;
        right[t] += dataset->split(split_names[i % 3])->sequences() == 2 ? 1 : 0;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 40));
}

TEST(Dataset, RefusesEveryTruncation) {
  const Folder folder;
  write_small(folder / "x.h5");
  const Bytes whole = get_file(folder / "x.h5");
  for (std::size_t part = 0; part < 16; ++part) {
    put_file(folder / "cut.h5", cut_short(whole, part));
    SCOPED_TRACE(part);
    expect_user_error([&] { read_everything(folder / "cut.h5"); }, "cut.h5");
  }
}

// Damage anywhere is detected or harmless: headers, indexes and data all carry checksums.
TEST(Dataset, NeverReadsWrongBytesFromADamagedFile) {
  const Folder folder;
  write_small(folder / "x.h5");
  const Bytes right = read_everything(folder / "x.h5");
  const Bytes whole = get_file(folder / "x.h5");
  const Bytes noise = random_bytes(600, 4);
  int errors = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    Bytes damaged = whole;
    const std::size_t at = (noise[3 * i] * 256u + noise[3 * i + 1]) * whole.size() / 65536;
    damaged[at] = static_cast<std::uint8_t>(damaged[at] ^ (noise[3 * i + 2] | 1));
    put_file(folder / "damaged.h5", damaged);
    try {
      EXPECT_TRUE(read_everything(folder / "damaged.h5") == right) << "byte " << at << " was changed";
    } catch (const UserError& error) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 100);
}

// Files from other programs: what is needed is checked, and what is missing is named.
TEST(Dataset, ReadsWhatAnotherProgramWrote) {
  const Folder folder;
  Foreign(folder / "x.h5").kind("bytes").splits({500});
  EXPECT_EQ(Dataset::open(folder / "x.h5")->split("train")->length(0), 500);
  Foreign(folder / "y.h5").kind("images").number("rows", 2).number("columns", 3).number("channels", 1).splits({4, 6});
  EXPECT_EQ(Dataset::open(folder / "y.h5")->split("train")->sequences(), 4);
}

TEST(Dataset, SaysWhatIsWrongWithAFile) {
  const Folder folder;
  const auto refused = [&](const std::string& message) {
    expect_user_error([&] { read_everything(folder / "x.h5"); }, message);
  };
  refused("x.h5");  // not there
  put_file(folder / "x.h5", {});
  refused("is not an HDF5 file");
  put_file(folder / "x.h5", random_bytes(5000, 5));
  refused("is not an HDF5 file");
  expect_user_error([&] { Dataset::open(folder.path()); }, "is a directory");
  using F = Foreign&;
  const std::vector<std::pair<const char*, std::function<void(F)>>> files = {
      {"has no attribute 'kind'", [](F f) { f.splits({10}); }},
      {"its kind is 'video'", [](F f) { f.kind("video").splits({10}); }},
      {"format_version 9", [](F f) { f.kind("bytes").number("format_version", 9).splits({10}); }},
      {"no readable dataset 'test'", [](F f) { f.kind("bytes").array("train", {10}).array("valid", {10}); }},
      {"does not have 1 dimension",
       [](F f) {
         f.kind("bytes").splits({10, 2});
       }},
      {"'train' does not hold uint8", [](F f) { f.kind("bytes").array("train", {10}, H5T_NATIVE_FLOAT); }},
      {"'train' does not hold uint8", [](F f) { f.kind("bytes").array("train", {10}, H5T_STD_I8LE); }},
      {"has no attribute 'rows'",
       [](F f) {
         f.kind("images").splits({10, 2});
       }},
      {"attribute 'rows' is 0",
       [](F f) {
         f.kind("images").number("rows", 0).splits({10, 2});
       }},
      {"rows of 5 bytes, but 2 x 2 x 3 make 12",
       [](F f) {
         f.kind("images").number("rows", 2).number("columns", 2).number("channels", 3).splits({10, 5});
       }},
      {"has no attribute 'rate'", [](F f) { f.kind("audio").splits({10}); }},
      {"entries, but the file has", [](F f) { f.kind("bytes").hollow("train", hsize_t{1} << 40); }},
      {"entries, but the file has",
       [](F f) { f.kind("bytes").hollow("train", 100'000'000).array("valid", {1}).array("test", {1}); }},
      {"must rise from 0 to 10",
       [](F f) { f.kind("audio").number("rate", 1).splits({10}).array("train_boundaries", {3}, H5T_STD_I64LE); }},
      {"'train_boundaries' does not hold int64",
       [](F f) { f.kind("audio").number("rate", 1).splits({10}).array("train_boundaries", {3}, H5T_STD_I32LE); }}};
  for (const auto& [message, write] : files) {
    {
      Foreign file(folder / "x.h5");
      write(file);
    }
    refused(message);
  }
}

TEST(OpenTrainingData, ChecksTheRecipeAgainstTheFile) {
  const Folder folder;
  {
    DatasetWriter writer(folder / "x.h5", images(4), false);
    const Bytes pixels = random_bytes(48 * 3, 6);
    writer.append(train, pixels.data(), 96);
    writer.append(valid, pixels.data() + 96, 48);
    EXPECT_EQ(writer.bytes(test_split), 0);
    writer.commit("all");
  }
  const auto rows_of = [&](DataKind kind, std::int64_t context) {
    return open_training_data(*Dataset::open(folder / "x.h5"), {kind, folder / "x.h5", context, false}, 1, 1)
        ->epoch_rows();
  };
  EXPECT_EQ(rows_of(DataKind::images, 48), 2);
  expect_user_error([&] { rows_of(DataKind::bytes, 48); }, "holds images, but the recipe's data.kind is bytes");
  expect_user_error([&] { rows_of(DataKind::images, 64); }, "4 x 4 x 3 = 48 bytes, but data.context is 64");
  expect_user_error([&] { Dataset::open(folder / "none.h5"); }, "none.h5: does not exist");
}

TEST(DatasetWriter, LeavesNothingWithoutCommit) {
  const Folder folder;
  {
    DatasetWriter writer(folder / "x.h5", images(4), false);
    const Bytes pixels(48 * 1000, 1);
    writer.append(train, pixels.data(), 48 * 1000);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    EXPECT_TRUE(folder.holds_temporaries());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Numbers of 16 bits, one or several of a sequence, reach the rows of documents; others are refused in a sentence.
TEST(Labels, AreThoseOfTheSequenceThatARowIsFrom) {
  const Folder folder;
  const std::string path = folder.path() + "/x.h5";
  const auto words = [](const std::vector<std::uint16_t>& values) {
    Bytes bytes(2 * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  const auto ends = [](const std::vector<std::int64_t>& values) {
    Bytes bytes(8 * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  for (const std::int64_t each : {1, 3}) {
    std::vector<std::uint16_t> labels;
    for (std::uint16_t i = 0; i < 2 * each; ++i) labels.push_back(static_cast<std::uint16_t>(i * 300));
    {
      Foreign file(path);
      file.kind("bytes");
      for (const char* name : split_names) {
        const std::string split = name;
        const std::vector<hsize_t> shape = each == 1 ? std::vector<hsize_t>{2} : std::vector<hsize_t>{2, 3};
        file.array(name, {10});
        file.array((split + "_boundaries").c_str(), {3}, ends({0, 4, 10}), H5P_DEFAULT, H5T_STD_I64LE);
        file.array((split + "_labels").c_str(), shape, words(labels), H5P_DEFAULT, H5T_STD_U16LE);
      }
    }
    const auto dataset = Dataset::open(path);
    EXPECT_EQ(dataset->labels("train").values, std::vector<std::uint32_t>(labels.begin(), labels.end()));
    EXPECT_EQ(dataset->labels("train").each, each);
    DataConfig config;
    config.documents = Documents::rows;
    const auto rows = dataset->split("train", config);
    const auto second = rows->labels(1);
    EXPECT_EQ(std::vector<std::uint32_t>(second.begin(), second.end()),
              std::vector<std::uint32_t>(labels.end() - each, labels.end()));
    if (each == 1) {
      check_answered(*rows, Classes(301), "x");
      expect_user_error([&] { check_answered(*rows, Classes(300), "x"); },
                        "x: sequence 1 has class 300, but objective.classes is 300; set it to the number of classes");
    } else {
      expect_user_error(
          [&] { check_answered(*rows, Classes(2000), "x"); },
          "x: has 3 labels of every sequence, but objective.kind classes reads 1; prepare it with labels, "
          "and for those of documents set data.documents: rows");
      expect_user_error([&] { check_answered(*rows, IndependentLabels(3), "x"); }, "x: sequence 0 has label 300, but");
    }
    // Documents in a row have no labels of their own.
    config.documents = Documents::separate;
    EXPECT_TRUE(dataset->split("train", config)->labels(0).empty());
  }
}

// Labels of groups are one each, those of spans may need 32 bits, and both reach the rows of every view.
TEST(Labels, OfGroupsReachEveryViewAndSpansMayHave32Bits) {
  const Folder folder;
  const std::string path = folder.path() + "/x.h5";
  const auto raw = [](const auto& values) {
    Bytes bytes(values.size() * sizeof values[0]);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  const auto write = [&](const std::vector<std::uint16_t>& classes) {
    Foreign file(path);
    file.kind("bytes");
    for (const char* name : split_names) {
      const std::string split = name;
      const auto add = [&](const char* what, const std::vector<hsize_t>& shape, const Bytes& bytes, hid_t type) {
        file.array((split + what).c_str(), shape, bytes, H5P_DEFAULT, type);
      };
      file.array(name, {10});
      add("_boundaries", {3}, raw(std::vector<std::int64_t>{0, 4, 10}), H5T_STD_I64LE);
      add("_groups", {5}, raw(std::vector<std::int64_t>{0, 2, 4, 7, 10}), H5T_STD_I64LE);
      add("_labels", {2, 2}, raw(std::vector<std::uint32_t>{1, 3, 70000, 70001}), H5T_STD_U32LE);
      add("_group_labels", {classes.size()}, raw(classes), H5T_STD_U16LE);
    }
  };
  const std::vector<std::uint16_t> classes{3, 0, 1, 2};
  write(classes);
  const auto dataset = Dataset::open(path);
  EXPECT_EQ(dataset->group_labels("train"), classes);
  EXPECT_EQ(dataset->labels("train").values, (std::vector<std::uint32_t>{1, 3, 70000, 70001}));
  for (const Documents documents : {Documents::joined, Documents::separate, Documents::rows}) {
    DataConfig config;
    config.documents = documents;
    const auto view = dataset->split("train", config);
    const auto found = view->group_labels();
    EXPECT_EQ(std::vector<std::uint16_t>(found.begin(), found.end()), classes);
    check_answered(*view, Sentences(4), "x");
    expect_user_error([&] { check_answered(*view, Sentences(3), "x"); },
                      "x: has a group of class 3, but objective.classes is 3; set it to the number of classes");
    if (documents == Documents::rows) {
      EXPECT_EQ(view->row(1, 2, 3, nullptr).offset, 2);
      EXPECT_EQ(view->row(1, 2, 3, nullptr).groups.offset, 6);
      expect_user_error([&] { check_answered(*view, Spans(), "x"); }, "x: sequence 1 has labels 70000 and 70001, but");
    }
  }
  write({1, 2});
  expect_user_error([&] { Dataset::open(path)->split("train"); }, "has 2 labels for 4 groups; prepare the file again");
}

}  // namespace
}  // namespace longstride
