// Small likenesses of the archives that the guide names (docs/guide/downloads.md), in exactly the layout in which their
// authors publish them: what they give, taken as they are downloaded.
#include "datasets/formats/cifar10.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"

namespace longstride {
namespace {

// All splits and labels of a dataset, one after another.
Bytes content_of(const std::string& path) {
  const auto dataset = Dataset::open(path);
  Bytes out;
  for (const char* name : split_names) {
    const Bytes bytes = whole_split(*dataset, name);
    out.insert(out.end(), bytes.begin(), bytes.end());
    for (const std::uint32_t label : dataset->labels(name).values) out.push_back(static_cast<std::uint8_t>(label));
    out.push_back('|');
  }
  return out;
}

Bytes prepared(const Folder& folder, const std::string& arguments) {
  const Outcome outcome = call(fmt::format("prepare {} --force --output {}/x.h5", arguments, folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  return content_of(folder / "x.h5");
}

void expect_source(const Folder& folder, const std::string& name) {
  const auto sources = Dataset::open(folder / "x.h5")->sources();
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].name, folder / name);
  EXPECT_EQ(sources[0].sha256, sha256_of_file(folder / name));
}

TEST(Published, Enwik8) {
  const Folder folder;
  const Bytes text = random_bytes(10'000, 1);
  put_file(folder / "enwik8", text);
  put_file(folder / "enwik8.zip", make_archive({{"enwik8", text}}, "zip"));
  const auto arguments = [&](const char* name) {
    return fmt::format("bytes --input {}/{} --split 9000,500,500", folder.path(), name);
  };
  const Bytes wanted = prepared(folder, arguments("enwik8"));
  EXPECT_TRUE(prepared(folder, arguments("enwik8.zip")) == wanted);
  expect_source(folder, "enwik8.zip");
}

// The published archive is not in the order of the names.
NamedFiles cifar10_files(std::int64_t records) {
  NamedFiles files;
  for (const char* name : {"data_batch_1.bin", "batches.meta.txt", "data_batch_3.bin", "data_batch_4.bin",
                           "test_batch.bin", "readme.html", "data_batch_5.bin", "data_batch_2.bin"}) {
    Bytes content = random_bytes(static_cast<std::size_t>(records * Cifar10::record), 2 + files.size());
    for (std::size_t at = 0; at < content.size(); at += Cifar10::record) content[at] %= 10;
    if (!std::string(name).ends_with(".bin")) content = {'t', 'e', 'x', 't'};
    files.emplace_back(std::string("cifar-10-batches-bin/") + name, content);
  }
  return files;
}

TEST(Published, Cifar10) {
  const Folder folder;
  const NamedFiles files = cifar10_files(30);
  for (const auto& [name, bytes] : files) put_file(folder / name, bytes);
  const Bytes wanted = prepared(folder, fmt::format("cifar10 --input {}/cifar-10-batches-bin", folder.path()));
  for (const auto& [name, format, filter] :
       {std::tuple{"cifar-10-binary.tar.gz", "ustar", "gzip"}, {"a.tar.xz", "gnutar", "xz"}, {"a.zip", "zip", ""}}) {
    put_file(folder / name, make_archive(files, format, filter));
    EXPECT_TRUE(prepared(folder, fmt::format("cifar10 --input {}/{}", folder.path(), name)) == wanted) << name;
    expect_source(folder, name);
  }
  NamedFiles flat;  // an archive of the batches alone, whose test batch must not be trained on
  for (const auto& [name, bytes] : files) flat.emplace_back(name.substr(name.find('/') + 1), bytes);
  put_file(folder / "flat.tar.gz", make_archive(flat, "ustar", "gzip"));
  EXPECT_TRUE(prepared(folder, fmt::format("cifar10 --input {}/flat.tar.gz", folder.path())) == wanted);
}

TEST(Published, Cifar10GivenPackedAndUnpackedIsRefused) {
  const Folder folder;
  const NamedFiles files = cifar10_files(3);
  for (const auto& [name, bytes] : files) put_file(folder / name, bytes);
  put_file(folder / "c.tar.gz", make_archive(files, "ustar", "gzip"));
  put_file(folder / "renamed/data_batch_9.bin", files[0].second);
  const auto refused = [&](std::vector<std::string> inputs, const std::string& message) {
    PrepareCifar10Config config;
    config.inputs = std::move(inputs);
    expect_user_error([&] { prepare_cifar10(config, to(folder / "x.h5")); }, message);
  };
  refused({folder / "c.tar.gz", folder / "cifar-10-batches-bin"},
          folder / "cifar-10-batches-bin/data_batch_1.bin: holds the same pictures as " +
              (folder / "c.tar.gz:cifar-10-batches-bin/data_batch_1.bin; give every batch once"));
  refused({folder.path()}, "renamed/data_batch_9.bin: holds the same pictures as");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

TEST(Published, Cifar10OfTheWrongVersionOrCutShort) {
  const Folder folder;
  const Bytes whole = make_archive(cifar10_files(3), "ustar", "gzip");
  const auto refused = [&](const Bytes& file, const std::string& message) {
    put_file(folder / "c.tar.gz", file);
    PrepareCifar10Config config;
    config.inputs = {folder / "c.tar.gz"};
    expect_user_error([&] { prepare_cifar10(config, to(folder / "x.h5")); }, message);
  };
  refused(make_archive({{"cifar-10-batches-py/data_batch_1", {0x80, 2}}}, "ustar", "gzip"),
          "c.tar.gz: holds no data_batch_*.bin or test_batch.bin");
  refused(make_archive({{"a/data_batch_1.bin", Bytes(3074 * 3, 1)}}, "ustar", "gzip"),
          "c.tar.gz:a/data_batch_1.bin: has 9,222 bytes");
  refused(make_archive({{"data_batch_1.bin", Bytes(3073, 11)}}, "ustar", "gzip"), "record 0 has the label 11");
  NamedFiles many;
  for (int i = 0; i < 7; ++i) many.emplace_back(fmt::format("data_batch_{}.bin", i), Bytes(3073, 1));
  refused(make_archive(many, "ustar", "gzip"), "holds more than CIFAR-10's 6 batches");
  refused(make_archive({many[0], many[0]}, "ustar", "gzip"), "is in the archive twice");
  for (std::size_t part = 1; part < 16; ++part) refused(cut_short(whole, part), "c.tar.gz");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

// PNGs in a folder of the archive's name.
TEST(Published, DownsampledImageNetAsPictures) {
  const Folder folder;
  NamedFiles train, valid;
  for (std::size_t i = 1; i <= 7; ++i) {
    const Bytes png = encode_png(side, side, random_bytes(picture, i), {});
    (i <= 5 ? train : valid).emplace_back(fmt::format("{}_8x8/{:07}.png", i <= 5 ? "train" : "valid", i), png);
  }
  for (const NamedFiles& files : {train, valid})
    for (const auto& [name, bytes] : files) put_file(folder / name, bytes);
  put_file(folder / "train_8x8.tar", make_archive(train, "gnutar"));
  put_file(folder / "valid_8x8.tar", make_archive(valid, "gnutar"));
  const auto arguments = [&](const char* ending) {
    return fmt::format("images --input {0}/train_8x8{1} --valid-input {0}/valid_8x8{1} --size 8", folder.path(),
                       ending);
  };
  const Bytes wanted = prepared(folder, arguments(""));
  EXPECT_TRUE(prepared(folder, arguments(".tar")) == wanted);
  EXPECT_EQ(Dataset::open(folder / "x.h5")->size("valid").sequences, 2);
}

// A zip archive of .npz files, which have labels and, for training, the mean next to the pictures.
NamedFiles imagenet_batches(const Bytes& pixels, const char* options) {
  NamedFiles batches;
  const std::size_t sizes[] = {2, 3, 1};  // pictures of batches 1, 2 and 10
  const char* names[] = {"1", "2", "10"};
  std::size_t begin = 0;
  for (std::size_t b = 0; b < 3; ++b) {
    const Bytes part(pixels.begin() + static_cast<std::ptrdiff_t>(begin * picture),
                     pixels.begin() + static_cast<std::ptrdiff_t>((begin + sizes[b]) * picture));
    begin += sizes[b];
    batches.emplace_back(
        fmt::format("train_data_batch_{}.npz", names[b]),
        make_archive({{"labels.npy", make_npy(fmt::format("({},)", sizes[b]), Bytes(8 * sizes[b]), "<i8")},
                      {"data.npy", make_npy(fmt::format("({}, 192)", sizes[b]), planar(part))},
                      {"mean.npy", make_npy("(192,)", Bytes(192 * 8), "<f8")}},
                     "zip", "", options));
  }
  return batches;
}

TEST(Published, DownsampledImageNetAsArrays) {
  const Folder folder;
  const Bytes pixels = random_bytes(6 * picture, 3);
  // Batch 10 comes before batch 2: the order of their names.
  Bytes wanted(pixels.begin(), pixels.begin() + 2 * picture);
  wanted.insert(wanted.end(), pixels.begin() + 5 * picture, pixels.end());
  wanted.insert(wanted.end(), pixels.begin() + 2 * picture, pixels.begin() + 5 * picture);
  for (const char* inner : {"zip:compression=store", "zip:compression=deflate"}) {
    const NamedFiles batches = imagenet_batches(pixels, inner);
    for (const auto& [name, bytes] : batches) put_file(folder / "batches/" + name, bytes);
    EXPECT_TRUE(train_of(config_of({folder / "batches"}), folder) == wanted) << inner;
    for (const char* outer : {"zip:compression=store", "zip:compression=deflate"}) {
      put_file(folder / "Imagenet64_train_part1_npz.zip", make_archive(batches, "zip", "", outer));
      EXPECT_TRUE(train_of(config_of({folder / "Imagenet64_train_part1_npz.zip"}), folder) == wanted) << inner << outer;
      expect_source(folder, "Imagenet64_train_part1_npz.zip");
    }
    put_file(folder / "batches.tar.gz", make_archive(batches, "gnutar", "gzip"));
    EXPECT_TRUE(train_of(config_of({folder / "batches.tar.gz"}), folder) == wanted) << inner;
  }
}

TEST(Published, DamagedArraysWithinArraysAreRefused) {
  const Folder folder;
  const Bytes pixels = random_bytes(6 * picture, 4);
  const Bytes whole =
      make_archive(imagenet_batches(pixels, "zip:compression=store"), "zip", "", "zip:compression=store");
  const auto refused = [&](const Bytes& file, const std::string& message) {
    put_file(folder / "a.zip", file);
    expect_user_error([&] { prepare_images(config_of({folder / "a.zip"}), to(folder / "x.h5")); }, message);
  };
  Bytes damaged = whole;
  const Bytes part(planar(slice(pixels, 1)));
  *std::search(damaged.begin(), damaged.end(), part.begin(), part.end()) ^= 1;
  refused(damaged, "a.zip:train_data_batch_1.npz");
  for (std::size_t sixteenth = 1; sixteenth < 16; ++sixteenth) refused(cut_short(whole, sixteenth), "a.zip");
  refused(make_archive({{"a.npz", {'x'}}}, "zip"), "a.zip:a.npz: ");
  refused(make_archive({{"a.npz", make_archive({{"x.npy", {1}}, {"y.npy", {1}}}, "zip")}}, "zip"),
          "a.zip:a.npz: has no array 'data' among its 2 (x.npy y.npy)");
  refused(make_archive({{"a.npy", make_npy("(1, 9)", Bytes(9))}}, "zip"), "a.zip:a.npy: has the shape (1, 9)");
  refused(make_archive({{"a.npy", make_npy("(1, 192)", Bytes(192))}, {"b.png", {1}}}, "zip"),
          "holds both pictures and arrays (a.npy)");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

}  // namespace
}  // namespace longstride
