// CIFAR-10: a seeded permutation divides the training batches into train and valid, 48,000 and 2,000 pictures of the
// whole set; the test batch is the test split.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "datasets/formats/archive.h"
#include "datasets/formats/byte_input.h"
#include "datasets/formats/cifar10.h"
#include "datasets/formats/input_files.h"
#include "datasets/permutation.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

struct BatchFile {
  std::shared_ptr<const Blob> blob;
  bool test = false, archived = false;

  const std::string& name() const { return blob->name(); }
};

struct Batches {
  std::vector<BatchFile> train, test;
  std::vector<std::string> files;     // every one that is read
  std::vector<std::string> archives;  // archives that hold several batches
};

// Whatever the case: a copy of a disk may have names in capitals.
std::string lower_name(const std::string& path) {
  std::string name = file_name(path);
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return name;
}

bool is_test(const std::string& path) { return lower_name(path).starts_with("test_batch"); }

bool named_like_batch(const std::string& path) {
  return lower_extension(path) == "bin" && (is_test(path) || lower_name(path).starts_with("data_batch"));
}

bool is_archive(const std::string& path) {
  const std::string format = recognised_format(FileBlob(path));
  for (const char* packed : {"tar", "zip", "gzip", "xz", "bzip2", "zstd"})
    if (format == packed) return true;
  return lower_extension(path) == "tar";
}

// A file of an archive, which is read into memory because an archive can only be read in its own order.
class ArchivedBatch final : public Blob {
 public:
  explicit ArchivedBatch(Archive& archive) : name_(archive.name()) {
    constexpr auto most = static_cast<std::uint64_t>(Cifar10::whole_training_set * Cifar10::record);
    if (archive.left() > most)
      throw user_error("{}: has {} bytes, more than all of CIFAR-10; it is not a batch of its binary version", name_,
                       archive.left());
    bytes_.resize(static_cast<std::size_t>(archive.left()));
    archive.read(bytes_.data(), bytes_.size());
  }
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, void* out, std::size_t count) const override {
    MemoryBlob(name_, bytes_.data(), bytes_.size()).read(offset, out, count);
  }

 private:
  std::string name_;
  std::vector<std::uint8_t> bytes_;
};

// In the order of their names, as in a folder.
std::vector<BatchFile> batches_in(const std::string& path) {
  std::map<std::string, BatchFile> found;
  const FileBlob blob(path);
  constexpr std::size_t most = 6;
  for (const auto archive = open_archive(blob); archive->next();) {
    if (!named_like_batch(archive->member())) continue;
    const std::string member = archive->member();
    if (!found.emplace(member, BatchFile{std::make_shared<ArchivedBatch>(*archive), is_test(member), true}).second)
      throw user_error("{}: is in the archive twice; unpack it to a folder and use that", archive->name());
    if (found.size() > most)
      throw user_error("{}: holds more than CIFAR-10's {} batches; unpack it and name those that are needed", path,
                       most);
  }
  std::vector<BatchFile> out;
  for (auto& [name, batch] : found) out.push_back(std::move(batch));
  return out;
}

Batches find_batches(const std::vector<std::string>& inputs) {
  if (inputs.empty())
    throw user_error("--input is needed: cifar-10-binary.tar.gz, the folder that it unpacks to, or its files");
  check_distinct(inputs);
  std::vector<BatchFile> all;
  Batches batches;
  const auto add_file = [&](const std::string& path) {
    batches.files.push_back(path);
    all.push_back({std::make_shared<FileBlob>(path), is_test(path), false});
  };
  for (const std::string& input : inputs) {
    const std::size_t before = all.size();
    if (is_folder(input)) {
      for (const std::string& path : files_under(input))
        if (named_like_batch(path)) add_file(path);
    } else if (is_archive(input)) {
      batches.files.push_back(input);
      batches.archives.push_back(input);
      for (BatchFile& batch : batches_in(input)) all.push_back(std::move(batch));
    } else {
      add_file(input);
    }
    if (all.size() == before)
      throw user_error("{}: holds no data_batch_*.bin or test_batch.bin; CIFAR-10's binary version is needed", input);
  }
  check_distinct(batches.files);
  for (BatchFile& batch : all) (batch.test ? batches.test : batches.train).push_back(std::move(batch));
  if (batches.train.empty())
    throw user_error("{}: is the test batch, so there is nothing to train on; give a data_batch file too",
                     batches.test[0].name());
  return batches;
}

std::int64_t count_records(const std::vector<BatchFile>& batches) {
  std::int64_t records = 0;
  for (const BatchFile& batch : batches) {
    if (recognised_format(*batch.blob) == "pickle")
      throw user_error("{}: is a batch of CIFAR-10's Python version; take the binary version", batch.name());
    records += cifar10_records(batch.blob->size(), batch.name());
  }
  return records;
}

// split(i): where record i of the file goes. Returns the number of records. UserError for the content of an earlier
// batch, as in the archive and in the folder that it unpacks to; `seen` has the names of these by checksum.
template <class F>
std::int64_t copy_batch(const BatchFile& batch, std::map<std::string, std::string>& seen, DatasetWriter& writer,
                        InputProgress& progress, F&& split) {
  constexpr std::int64_t at_once = 128;
  const Blob& blob = *batch.blob;
  const std::string& path = batch.name();
  Sha256 sha;
  BlobStream stream(blob, &sha);
  std::vector<std::uint8_t> records(static_cast<std::size_t>(at_once * Cifar10::record));
  std::array<std::uint8_t, Cifar10::pixels> pixels;
  const std::int64_t count = cifar10_records(blob.size(), path);
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t taken = std::min(at_once, count - first);
    stream.read(records.data(), static_cast<std::size_t>(taken * Cifar10::record));
    for (std::int64_t r = 0; r < taken; ++r) {
      const std::uint16_t label = decode_cifar10(records.data() + r * Cifar10::record, first + r, path, pixels.data());
      const SplitId to = split(first + r);
      writer.append(to, pixels.data(), Cifar10::pixels);
      writer.append_labels(to, {&label, 1});
    }
    progress.add(taken * Cifar10::record);
  }
  const auto [at, fresh] = seen.emplace(sha.hex(), path);
  if (!fresh) throw user_error("{}: holds the same pictures as {}; give every batch once", path, at->second);
  if (!batch.archived) writer.add_source({path, static_cast<std::int64_t>(blob.size()), at->first});
  return count;
}

}  // namespace

void prepare_cifar10(const PrepareCifar10Config& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, config.inputs);
  const Batches batches = find_batches(config.inputs);
  check_output(output.path, output.replace, batches.files);
  const std::int64_t training = count_records(batches.train), test = count_records(batches.test);
  if (training > Cifar10::whole_training_set || test > Cifar10::whole_test_set)
    throw user_error(
        "{}: {} training and {} test records are more than CIFAR-10's 50,000 and 10,000; name every batch only once",
        config.inputs[0], thousands(training), thousands(test));
  const std::int64_t valid = (training + 12) / 25;  // 4%, rounded: 2,000 of 50,000
  const std::int64_t train = training - valid;

  DatasetInfo info;
  info.kind = DataKind::cifar10;
  info.rows = info.columns = Cifar10::side;
  info.channels = Cifar10::channels;
  const FoldersOf folders(output.path);
  DatasetWriter writer(output.path, info, output.replace);
  InputProgress progress(output.progress, (training + test) * Cifar10::record);
  const Permutation order(static_cast<std::uint64_t>(training), config.seed, 0, kernels::Purpose::split);
  std::map<std::string, std::string> seen;
  std::int64_t before = 0;
  for (const BatchFile& batch : batches.train)
    before += copy_batch(batch, seen, writer, progress, [&](std::int64_t i) {
      const bool trains = order(static_cast<std::uint64_t>(before + i)) < static_cast<std::uint64_t>(train);
      return trains ? SplitId::train : SplitId::valid;
    });
  for (const BatchFile& batch : batches.test)
    copy_batch(batch, seen, writer, progress, [](std::int64_t) { return SplitId::test; });
  for (const std::string& path : batches.archives)
    writer.add_source({path, bytes_of_files({path}), sha256_of_file(path)});
  writer.commit(fmt::format(
      "training batches: {} train, {} valid by a permutation of seed {}; {}", thousands(train), thousands(valid),
      config.seed,
      test > 0 ? fmt::format("test batch: {} test", thousands(test)) : "no test_batch was given, so test is empty"));
}

}  // namespace longstride
