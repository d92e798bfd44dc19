// Patches to valid dataset files, with the checksums corrected so that HDF5 accepts them: an error, or bytes. Without
// the correction: an error, or exactly the bytes that were written.
//
// An input is not a file but describes changes to one: which file, then records of eight bytes.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "datasets/dataset.h"
#include "datasets/formats/byte_input.h"
#include "datasets/hdf5/chunk_filters.h"
#include "datasets/prepare/dataset_writer.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/foreign.h"
#include "tests/datasets/hdf5/hdf5_metadata.h"
#include "tests/support/temporary_directory.h"

namespace {

using namespace longstride;

struct Seed {
  Bytes file;
  std::vector<ChecksummedExtent> metadata, chunks;  // by lookup3 and by Fletcher-32
  bool ours = false;
  std::string digest;
};

constexpr std::size_t most_bytes = std::size_t{64} << 20;  // read of one split

// Checksum of everything that a run and `info` read.
std::string read_everything(const Bytes& file, bool resident) {
  const auto dataset = std::make_shared<const Dataset>(
      std::make_shared<const MemoryBlob>("fuzz", file.data(), file.size()), resident ? std::int64_t{1} << 30 : 0);
  Sha256 sha;
  for (const char* name : split_names) {
    if (dataset->size(name).bytes > static_cast<std::int64_t>(most_bytes)) continue;
    const auto split = dataset->split(name);
    Bytes out;
    for (std::int64_t s = 0; s < split->sequences(); ++s) {
      out.resize(static_cast<std::size_t>(split->length(s)));
      split->read(s, 0, split->length(s), out.data());
      sha.update(out.data(), out.size());
    }
    const std::vector<std::uint32_t> labels = dataset->labels(name).values;
    sha.update(labels.data(), labels.size() * sizeof labels[0]);
    const std::vector<std::uint16_t> of_groups = dataset->group_labels(name);
    sha.update(of_groups.data(), of_groups.size() * sizeof of_groups[0]);
  }
  for (const SourceFile& source : dataset->sources()) sha.update(source.name.data(), source.name.size());
  if (!resident) dataset->verify();
  return sha.hex();
}

Bytes pattern(std::size_t count) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(i * i >> 3);
  return out;
}

void write_pictures(const std::string& path) {
  DatasetInfo info;
  info.kind = DataKind::cifar10;
  info.rows = info.columns = 32;
  info.channels = 3;
  DatasetWriter writer(path, info, true);
  const Bytes pixels = pattern(7 * 3072);
  for (int i = 0; i < 7; ++i) {
    const SplitId split = i < 5 ? SplitId::train : SplitId::valid;
    writer.append(split, pixels.data() + 3072 * i, 3072);
    writer.append_labels(split, std::array{static_cast<std::uint16_t>(i)});
  }
  writer.add_source({"data_batch_1.bin", 21511, std::string(64, 'a')});
  writer.commit("by hand");
}

void write_sound(const std::string& path) {
  DatasetInfo info;
  info.kind = DataKind::audio;
  info.rate = 12000;
  DatasetWriter writer(path, info, true);
  const Bytes silence(std::size_t{256} << 10, 0), sound = pattern(1000);
  writer.append(SplitId::train, silence.data(), static_cast<std::int64_t>(silence.size()));
  writer.end_file(SplitId::train);
  writer.append(SplitId::train, sound.data(), 1000);
  writer.end_file(SplitId::train);
  writer.commit("by hand");
}

// As written by h5py: old or new headers, text of variable length, chunks with and without filters, no chunks.
void write_foreign(const std::string& path, bool old) {
  const hdf5::Lock lock;
  const hdf5::Handle access = H5Pcreate(H5P_FILE_ACCESS);
  if (!old) H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  const hsize_t chunk[] = {7, 5};
  const hdf5::Handle packed = H5Pcreate(H5P_DATASET_CREATE), plain = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(packed, 2, chunk);
  H5Pset_shuffle(packed);
  H5Pset_deflate(packed, 6);
  H5Pset_fletcher32(packed);
  H5Pset_chunk(plain, 2, chunk);
  const Bytes pixels = pattern(20 * 12);
  Foreign(path, access)
      .kind("images", true)
      .number("rows", 2)
      .number("columns", 2)
      .number("channels", 3)
      .array("train", {20, 12}, pixels, packed)
      .array("valid", {20, 12}, pixels, plain)
      .array("test", {20, 12}, pixels, H5P_DEFAULT);
}

// The stored chunks of our own arrays, each of which ends with its checksum.
std::vector<ChecksummedExtent> stored_chunks(const std::string& path) {
  std::vector<ChecksummedExtent> out;
  const hdf5::Lock lock;
  const hdf5::Handle file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  for (const char* name : {"train", "valid", "test", "train_labels", "valid_labels", "sources"}) {
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0) continue;
    const hdf5::Handle data = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(data);
    hsize_t count = 0;
    H5Dget_num_chunks(data, space, &count);
    for (hsize_t i = 0; i < count; ++i) {
      hsize_t offset[2] = {}, size = 0;
      unsigned mask = 0;
      haddr_t address = 0;
      H5Dget_chunk_info(data, space, i, offset, &mask, &address, &size);
      out.push_back({static_cast<std::size_t>(address), static_cast<std::size_t>(address + size - 4)});
    }
  }
  return out;
}

std::vector<Seed> make_seeds() {
  const longstride::testing::TemporaryDirectory folder;
  const std::string path = folder / "x.h5";
  std::vector<Seed> seeds;
  for (int i = 0; i < 4; ++i) {
    Seed seed;
    seed.ours = i < 2;
    if (i == 0) write_pictures(path);
    if (i == 1) write_sound(path);
    if (i > 1) write_foreign(path, i == 2);
    if (seed.ours) seed.chunks = stored_chunks(path);
    const std::string content = read_file(path);
    seed.file.assign(content.begin(), content.end());
    seed.metadata = checksummed_extents(seed.file);
    seed.digest = read_everything(seed.file, true);
    if (read_everything(seed.file, false) != seed.digest) std::abort();
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

struct Patch {
  std::uint8_t kind, extent;
  std::uint16_t offset;
  std::uint32_t value;
};

// Metadata is small but decisive, so most patches go there.
void apply(const Patch& patch, const Seed& seed, Bytes& file) {
  constexpr std::array<std::uint64_t, 8> telling = {0,      1,          0x7F,       0xFF,
                                                    0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, ~std::uint64_t{0}};
  std::size_t at = (std::size_t{patch.extent} << 16 | patch.offset) % file.size();
  if ((patch.kind & 0x80) == 0 && !seed.metadata.empty()) {
    const ChecksummedExtent& e = seed.metadata[patch.extent % seed.metadata.size()];
    at = e.begin + patch.offset % (e.end - e.begin);
  }
  const std::size_t width = std::min<std::size_t>(std::size_t{1} << (patch.kind >> 4 & 3), file.size() - at);
  std::uint64_t value = patch.value;
  switch (patch.kind & 7) {
    case 0:
      break;
    case 1:
      value = telling[patch.value % telling.size()];
      break;
    case 2:  // a little more or less than the value there
      value = 0;
      std::memcpy(&value, file.data() + at, width);
      value += static_cast<std::uint64_t>(static_cast<std::int8_t>(patch.value));
      break;
    case 3:  // a value from elsewhere: an address for an address
      value = 0;
      std::memcpy(&value, file.data() + patch.value % (file.size() - 8), width);
      break;
    case 4:
      file[at] = static_cast<std::uint8_t>(file[at] ^ 1 << (patch.value & 7));
      return;
    default:
      std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at),
                  std::min<std::size_t>(patch.value % 4096, file.size() - at), std::uint8_t{0});
      return;
  }
  std::memcpy(file.data() + at, &value, width);
}

}  // namespace

// HDF5 allocates as much memory as a file claims before it reads the data, and leaks some when it fails.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=0:quarantine_size_mb=16";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Seed> seeds = make_seeds();
  if (size < 2) return 0;
  const Seed& seed = seeds[data[0] % seeds.size()];
  const bool mend = (data[1] & 3) != 0, resident = (data[1] & 4) != 0;
  Bytes file = seed.file;
  for (std::size_t at = 2; at + sizeof(Patch) <= size; at += sizeof(Patch)) {
    Patch patch;
    std::memcpy(&patch, data + at, sizeof patch);
    apply(patch, seed, file);
  }
  if (mend) {
    for (const ChecksummedExtent& c : seed.chunks) {
      if (std::equal(file.begin() + static_cast<std::ptrdiff_t>(c.begin),
                     file.begin() + static_cast<std::ptrdiff_t>(c.end + 4),
                     seed.file.begin() + static_cast<std::ptrdiff_t>(c.begin)))
        continue;
      const std::uint32_t sum = hdf5::fletcher32(file.data() + c.begin, c.end - c.begin);
      std::memcpy(file.data() + c.end, &sum, sizeof sum);
    }
    mend_checksums(file, seed.metadata);
  }
  try {
    const std::string digest = read_everything(file, resident);
    if (!mend && seed.ours && digest != seed.digest) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
