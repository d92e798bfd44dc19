// Damage to a dataset file, at rest and while it is read, and false claims in a hostile one.
#include <algorithm>
#include <fstream>
#include <numeric>

#include "datasets/dataset.h"
#include "datasets/formats/byte_input.h"
#include "datasets/hdf5/hdf5_guard.h"
#include "datasets/prepare/dataset_writer.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/foreign.h"
#include "tests/datasets/hdf5/hdf5_metadata.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

constexpr std::size_t chunk = std::size_t{256} << 10;  // bytes in one of the writer's chunks
constexpr std::int64_t all_resident = std::int64_t{1} << 40, none_resident = 0;

// Four and a half chunks of noise in 'train', some of them zeros.
Bytes write_chunks(const std::string& path, std::vector<std::size_t> zeros = {}) {
  Bytes bytes = random_bytes(4 * chunk + chunk / 2, 7);
  for (const std::size_t z : zeros)
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(z * chunk), std::min(chunk, bytes.size() - z * chunk), 0);
  DatasetInfo info;
  DatasetWriter writer(path, info, true);
  writer.append(SplitId::train, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  writer.add_source({"raw", 1, std::string(64, 'a')});
  writer.commit("all");
  return bytes;
}

Bytes read_split(const Dataset& dataset, const std::string& name) {
  const auto split = dataset.split(name, true);
  Bytes out(split->sequences() == 0 ? 0 : static_cast<std::size_t>(split->length(0)));
  constexpr std::size_t at_once = 100'000;
  for (std::size_t at = 0; at < out.size(); at += at_once)
    split->read(0, static_cast<std::int64_t>(at), static_cast<std::int64_t>(std::min(at_once, out.size() - at)),
                out.data() + at);
  return out;
}

std::shared_ptr<const Dataset> open_as(const std::string& path, std::int64_t largest_resident) {
  return std::make_shared<const Dataset>(std::make_shared<const FileBlob>(path), largest_resident);
}

std::size_t place_of(const Bytes& file, const Bytes& part) {
  const auto at = std::search(file.begin(), file.end(), part.begin(), part.end());
  EXPECT_NE(at, file.end());
  return static_cast<std::size_t>(at - file.begin());
}

// Where the bytes of chunk `index` of 'train' are in the file.
std::size_t chunk_place(const Bytes& file, const Bytes& content, std::size_t index) {
  const auto begin = content.begin() + static_cast<std::ptrdiff_t>(index * chunk);
  return place_of(file, Bytes(begin, begin + 64));
}

// The checksum of zeros is zero, so a chunk zeroed together with its checksum looks right to HDF5.
TEST(DamagedDataset, DoesNotTakeZerosForData) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5");
  Bytes file = get_file(folder / "x.h5");
  for (const std::size_t index : {0, 2, 4}) {
    Bytes damaged = file;
    const std::size_t size = std::min(chunk, content.size() - index * chunk);
    std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(chunk_place(file, content, index)), chunk + 4, 0);
    SCOPED_TRACE(fmt::format("chunk {} of {} bytes", index, size));
    put_file(folder / "y.h5", damaged);
    expect_user_error([&] { open_as(folder / "y.h5", all_resident)->split("train"); }, "is damaged");
    expect_user_error([&] { read_split(*open_as(folder / "y.h5", none_resident), "train"); }, "is damaged");
    expect_user_error([&] { open_as(folder / "y.h5", none_resident)->verify(); }, "is damaged");
  }
}

// Counts the bytes read from a file.
class CountingBlob final : public Blob {
 public:
  explicit CountingBlob(const std::string& path) : file_(path) {}
  const std::string& name() const override { return file_.name(); }
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, void* out, std::size_t count) const override {
    file_.read(offset, out, count);
    total += count;
  }
  mutable std::uint64_t total = 0;

 private:
  FileBlob file_;
};

TEST(DamagedDataset, ReadsZerosThatWereWritten) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5", {1, 2, 4});
  EXPECT_TRUE(read_split(*open_as(folder / "x.h5", all_resident), "train") == content);
  EXPECT_TRUE(read_split(*open_as(folder / "x.h5", none_resident), "train") == content);
  // The list of zero chunks makes it unnecessary to read the whole split for its checksum.
  const auto blob = std::make_shared<const CountingBlob>(folder / "x.h5");
  const auto split = std::make_shared<const Dataset>(blob, none_resident)->split("train");
  Bytes out(1000, 1);
  split->read(0, static_cast<std::int64_t>(chunk), 1000, out.data());
  EXPECT_EQ(out, Bytes(1000, 0));
  EXPECT_LT(blob->total, 2 * chunk);
}

// In a file from another version, the checksum of the whole split decides, once.
TEST(DamagedDataset, ReadsZerosWithoutANoteByTheirChecksum) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5", {1, 2, 4});
  {
    const hdf5::Lock lock;
    const hdf5::Handle file = H5Fopen((folder / "x.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(H5Ldelete(file, "train_zeros", H5P_DEFAULT), 0);
  }
  EXPECT_TRUE(read_split(*open_as(folder / "x.h5", none_resident), "train") == content);
}

TEST(DamagedDataset, ReadsZerosOfAFileWithoutChecksums) {
  const Folder folder;
  { Foreign(folder / "x.h5").kind("bytes").splits({500}); }
  for (const std::int64_t resident : {all_resident, none_resident})
    EXPECT_EQ(read_split(*open_as(folder / "x.h5", resident), "train"), Bytes(500, 0));
}

void cut(const std::string& path, std::size_t size) { std::filesystem::resize_file(path, size); }

// As `cp` does: the same file with other content.
void write_over(const std::string& path, const Bytes& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

TEST(DamagedDataset, NoticesThatItIsCutShortWhileRead) {
  const Folder folder;
  for (const std::size_t part : {1, 4, 8, 15}) {
    const Bytes content = write_chunks(folder / "x.h5");
    const std::size_t size = get_file(folder / "x.h5").size();
    const auto streamed = open_as(folder / "x.h5", none_resident), resident = open_as(folder / "x.h5", all_resident);
    const auto split = streamed->split("train");
    Bytes out(1000);
    split->read(0, 0, 1000, out.data());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), content.begin()));
    cut(folder / "x.h5", size * part / 16);
    SCOPED_TRACE(fmt::format("cut to {} sixteenths", part));
    expect_user_error([&] { split->read(0, 4 * static_cast<std::int64_t>(chunk), 1000, out.data()); }, "bytes when");
    expect_user_error([&] { split->read(0, 0, 1000, out.data()); }, "bytes when");
    expect_user_error([&] { resident->split("train"); }, "x.h5");
    expect_user_error([&] { resident->sources(); }, "x.h5");
  }
}

TEST(DamagedDataset, NoticesThatItIsWrittenOverWhileRead) {
  const Folder folder;
  write_chunks(folder / "x.h5");
  const Bytes file = get_file(folder / "x.h5");
  const auto dataset = open_as(folder / "x.h5", none_resident);
  const auto split = dataset->split("train");
  Bytes out(1000);
  split->read(0, 0, 1000, out.data());
  std::filesystem::last_write_time(folder / "x.h5", std::filesystem::file_time_type::clock::now() +
                                                        std::chrono::seconds(2));  // later than any clock's tick
  expect_user_error([&] { split->read(0, 0, 1000, out.data()); }, "was changed");
  write_over(folder / "x.h5", Bytes(file.size(), 0));
  expect_user_error([&] { split->read(0, 0, 1000, out.data()); }, "was changed");
}

// An open file stays open, so another file that takes its name changes nothing.
TEST(DamagedDataset, KeepsReadingWhenAnotherFileTakesItsName) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5");
  const auto dataset = open_as(folder / "x.h5", none_resident);
  write_chunks(folder / "other.h5", {0, 1, 2, 3, 4});
  std::filesystem::rename(folder / "other.h5", folder / "x.h5");
  EXPECT_TRUE(read_split(*dataset, "train") == content);
}

// Labels, sources and the boundaries of files have checksums like the splits.
TEST(DamagedDataset, ChecksWhatIsStoredNextToTheSplits) {
  const Folder folder;
  {
    DatasetInfo info;
    info.kind = DataKind::audio;
    info.rate = 12000;
    DatasetWriter writer(folder / "x.h5", info, true);
    const Bytes sound = random_bytes(6000, 3);
    for (const int length : {1111, 2222, 1667}) {
      writer.append(SplitId::train, sound.data(), length);
      writer.end_file(SplitId::train);
    }
    writer.commit("all");
  }
  Bytes file = get_file(folder / "x.h5");
  Bytes boundaries(3 * 8, 0);
  const std::int64_t starts[] = {0, 1111, 3333};
  std::memcpy(boundaries.data(), starts, sizeof starts);
  file[place_of(file, boundaries) + 8] ^= 1;  // 1110: still rising from 0 to the length
  put_file(folder / "x.h5", file);
  expect_user_error([&] { Dataset::open(folder / "x.h5"); }, "'train_boundaries' has the sha256");
}

// Where the stored size of chunk `index` of 'train' is, in the index of its chunks.
std::size_t size_field(const Bytes& file, const Bytes& content, std::size_t index) {
  std::uint64_t address = chunk_place(file, content, index);
  Bytes entry(8);
  std::memcpy(entry.data(), &address, 8);
  return place_of(file, entry) + 8;
}

// HDF5 writes past its buffers if it trusts wrong sizes.
TEST(DamagedDataset, DoesNotBelieveTheSizesOfChunks) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5");
  const Bytes file = get_file(folder / "x.h5");
  const auto extents = checksummed_extents(file);
  EXPECT_GT(extents.size(), 8u);
  for (const std::uint32_t size : {0u, 1u, 3u, 4u, 1000u, 262147u, 262149u, 300000u, 0xFFFFFFu}) {
    Bytes crafted = file;
    for (const std::size_t index : {0, 1}) {
      const std::size_t at = size_field(file, content, index);
      ASSERT_EQ(word_at(file, at) & 0xFFFFFF, chunk + 4);
      std::memcpy(crafted.data() + at, &size, 3);
    }
    mend_checksums(crafted, extents);
    put_file(folder / "y.h5", crafted);
    SCOPED_TRACE(size);
    for (const std::int64_t resident : {all_resident, none_resident})
      expect_user_error([&] { read_split(*open_as(folder / "y.h5", resident), "train"); }, "cannot be read");
  }
}

// A mask that says that the checksum was skipped would let wrong bytes pass.
TEST(DamagedDataset, DoesNotBelieveThatAChecksumWasLeftOut) {
  const Folder folder;
  const Bytes content = write_chunks(folder / "x.h5");
  Bytes file = get_file(folder / "x.h5");
  const auto extents = checksummed_extents(file);
  file[size_field(file, content, 1) + 3] = 1;
  mend_checksums(file, extents);
  put_file(folder / "x.h5", file);
  expect_user_error([&] { read_split(*open_as(folder / "x.h5", none_resident), "train"); }, "cannot be read");
}

// Opens the file and reads a little of everything after each byte of metadata has been changed in several ways, with
// the checksums corrected: an error or not, but no crash and no endless loop.
void try_every_byte(const std::string& path) {
  Bytes file = get_file(path);
  const auto extents = checksummed_extents(file);
  ASSERT_GT(extents.size(), 2u);
  int opened = 0, refused = 0;
  for (const ChecksummedExtent& e : extents)
    for (std::size_t at = e.begin; at < e.end; ++at) {
      const std::uint8_t right = file[at];
      for (const int wrong : {0xFF, right + 1}) {
        file[at] = static_cast<std::uint8_t>(wrong);
        mend_checksums(file, {e});
        try {
          const auto dataset =
              std::make_shared<const Dataset>(std::make_shared<const MemoryBlob>("x.h5", file.data(), file.size()), 0);
          for (const char* name : split_names) {
            const auto split = dataset->split(name);
            std::uint8_t byte = 0;
            if (split->sequences() > 0 && split->length(0) > 0) split->read(0, 0, 1, &byte);
          }
          ++opened;
        } catch (const UserError&) {
          ++refused;
        }
      }
      file[at] = right;
      mend_checksums(file, {e});
    }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 100);
}

TEST(DamagedDataset, SurvivesEveryWrongByteOfItsMetadata) {
  const Folder folder;
  write_chunks(folder / "x.h5", {1});
  try_every_byte(folder / "x.h5");
}

// HDF5 evicts headers when there are many, and reads them again.
TEST(HeaderGuard, AllowsAHeaderAsOftenAsItIsRead) {
  const Folder folder;
  write_chunks(folder / "x.h5");
  const Bytes file = get_file(folder / "x.h5");
  hdf5::HeaderGuard guard(std::make_shared<const FileBlob>(folder / "x.h5"));
  int headers = 0;
  for (int time = 0; time < 3; ++time)
    for (const ChecksummedExtent& e : checksummed_extents(file))
      if (file[e.begin] == 'O' && file[e.begin + 1] == 'H') {
        EXPECT_TRUE(guard.allows(e.begin, file.data() + e.begin, 512)) << e.begin;
        ++headers;
      }
  EXPECT_EQ(headers, 3 * 5);  // the root, three splits and the sources
}

Bytes as_bytes(const std::vector<std::int64_t>& numbers) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(numbers.data());
  return Bytes(begin, begin + numbers.size() * sizeof(std::int64_t));
}

// Chunks of any shape, with gzip, shuffle and fletcher32 in h5py's order.
TEST(ForeignDataset, ReadsCompressedChunksOfAnyShape) {
  const Folder folder;
  Bytes content = random_bytes(50 * 12, 5);
  std::fill_n(content.begin(), 300, 7);  // some of it can be compressed
  for (const auto& [rows, columns] : {std::pair{50, 12}, {7, 12}, {7, 5}, {1, 1}, {3, 12}}) {
    const hdf5::Lock lock;
    const hsize_t shape[] = {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)};
    const hdf5::Handle creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 2, shape);
    H5Pset_shuffle(creation);
    H5Pset_deflate(creation, 4);
    H5Pset_fletcher32(creation);
    SCOPED_TRACE(fmt::format("chunks of {} x {}", rows, columns));
    {
      Foreign file(folder / "x.h5");
      file.kind("images").number("rows", 2).number("columns", 2).number("channels", 3);
      file.array("train", {50, 12}, content, creation).array("valid", {0, 12}).array("test", {1, 12});
    }
    for (const std::int64_t resident : {all_resident, none_resident}) {
      const auto split = open_as(folder / "x.h5", resident)->split("train");
      ASSERT_EQ(split->sequences(), 50);
      for (std::int64_t i = 0; i < 50; ++i) {
        Bytes row(12);
        split->read(i, 0, 12, row.data());
        EXPECT_TRUE(std::equal(row.begin(), row.end(), content.begin() + 12 * i)) << i;
      }
    }
  }
}

// With the chunk indexes and texts of variable length that our own files lack.
TEST(ForeignDataset, SurvivesEveryWrongByteOfItsMetadata) {
  const Folder folder;
  {
    const hdf5::Lock lock;
    const hdf5::Handle access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hsize_t seven = 7;
    const hdf5::Handle plain = H5Pcreate(H5P_DATASET_CREATE), packed = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plain, 1, &seven);
    H5Pset_chunk(packed, 1, &seven);
    H5Pset_deflate(packed, 6);
    Foreign(folder / "x.h5", access)
        .kind("bytes", true)
        .array("train", {20}, Bytes(20, 1), plain)
        .array("valid", {20}, Bytes(20, 1), packed)
        .array("test", {20});
  }
  EXPECT_EQ(Dataset::open(folder / "x.h5")->split("valid")->length(0), 20);
  try_every_byte(folder / "x.h5");
}

TEST(ForeignDataset, ReadsBoundariesInCompressedChunks) {
  const Folder folder;
  const hdf5::Lock lock;
  const hsize_t two = 2;
  const hdf5::Handle creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, &two);
  H5Pset_shuffle(creation);
  H5Pset_deflate(creation, 9);
  {
    Foreign file(folder / "x.h5");
    file.kind("audio").number("rate", 12000).splits({500});
    file.array("train_boundaries", {3}, as_bytes({0, 200, 500}), creation, H5T_STD_I64LE);
  }
  const auto split = Dataset::open(folder / "x.h5")->split("train");
  ASSERT_EQ(split->sequences(), 2);
  EXPECT_EQ(split->length(1), 300);
}

TEST(ForeignDataset, RefusesBoundariesThatDoNotRiseFromZeroToTheEnd) {
  const Folder folder;
  const hdf5::Lock lock;
  for (const std::vector<std::int64_t>& numbers :
       std::vector<std::vector<std::int64_t>>{{1, 200, 500}, {0, 200, 499}, {0, 300, 200, 500}, {500}, {}}) {
    {
      Foreign file(folder / "x.h5");
      file.kind("audio").number("rate", 12000).splits({500});
      file.array("train_boundaries", {numbers.size()}, as_bytes(numbers), H5P_DEFAULT, H5T_STD_I64LE);
    }
    expect_user_error([&] { Dataset::open(folder / "x.h5"); }, "'train_boundaries' must rise from 0 to 500");
  }
}

TEST(ForeignDataset, RefusesBytesThatAreElsewhereOrNeedOtherFilters) {
  const Folder folder;
  const hdf5::Lock lock;
  const auto refused = [&](hid_t creation, const std::string& message) {
    { Foreign(folder / "x.h5").kind("bytes").array("train", {500}, Bytes(500, 1), creation).array("valid", {1}); }
    expect_user_error([&] { Dataset::open(folder / "x.h5"); }, message);
  };
  const hsize_t hundred = 100;
  const hdf5::Handle packed = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(packed, 1, &hundred);
  H5Pset_nbit(packed);
  refused(packed, "uses the filter 5, but only gzip");
  const hdf5::Handle external = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, (folder / "bytes").c_str(), 0, 500);
  refused(external, "has its bytes in other files");
  { Foreign(folder / "other.h5").kind("bytes").splits({500}); }
  {
    Foreign(folder / "x.h5").kind("bytes").array("valid", {1}).array("test", {1});
    const hdf5::Handle file = H5Fopen((folder / "x.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Lcreate_external((folder / "other.h5").c_str(), "train", file, "train", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_user_error([&] { Dataset::open(folder / "x.h5"); }, "no readable dataset 'train'");
}

}  // namespace
}  // namespace longstride
