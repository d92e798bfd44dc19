// CIFAR-10: a seeded permutation divides the training batches into train and valid, 48,000 and 2,000 pictures of the
// whole set; the test batch is the test split.
#include <algorithm>
#include <array>
#include <cmath>

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

struct Batches {
  std::vector<std::string> train, test;
};

bool is_test(const std::string& path) { return file_name(path).starts_with("test_batch"); }

Batches find_batches(const std::vector<std::string>& inputs) {
  if (inputs.empty()) throw user_error("--input is needed: the folder of CIFAR-10's binary version, or its files");
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!is_folder(input)) {
      files.push_back(input);
      continue;
    }
    const std::size_t before = files.size();
    for (const std::string& path : files_under(input))
      if (lower_extension(path) == "bin" && (is_test(path) || file_name(path).starts_with("data_batch")))
        files.push_back(path);
    if (files.size() == before)
      throw user_error("{}: holds no data_batch_*.bin or test_batch.bin; CIFAR-10's binary version is needed", input);
  }
  check_distinct(files);
  Batches batches;
  for (const std::string& path : files) (is_test(path) ? batches.test : batches.train).push_back(path);
  if (batches.train.empty())
    throw user_error("{}: is the test batch, so there is nothing to train on; give a data_batch file too", files[0]);
  return batches;
}

std::int64_t count_records(const std::vector<std::string>& paths) {
  std::int64_t records = 0;
  for (const std::string& path : paths) {
    const FileBlob blob(path);
    const std::string format = recognised_format(blob);
    if (format == "gzip" || format == "xz" || format == "bzip2" || format == "zip" || format == "zstd")
      throw user_error("{}: is compressed ({}); unpack it first", path, format);
    if (format == "pickle")
      throw user_error("{}: is a batch of CIFAR-10's Python version; take the binary version", path);
    records += cifar10_records(blob.size(), path);
  }
  return records;
}

// split(i): where record i of the file goes. Returns the number of records.
template <class F>
std::int64_t copy_batch(const std::string& path, DatasetWriter& writer, InputProgress& progress, F&& split) {
  constexpr std::int64_t at_once = 128;
  const FileBlob blob(path);
  Sha256 sha;
  BlobStream stream(blob, &sha);
  std::vector<std::uint8_t> records(static_cast<std::size_t>(at_once * Cifar10::record));
  std::array<std::uint8_t, Cifar10::pixels> pixels;
  const std::int64_t count = cifar10_records(blob.size(), path);
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t taken = std::min(at_once, count - first);
    stream.read(records.data(), static_cast<std::size_t>(taken * Cifar10::record));
    for (std::int64_t r = 0; r < taken; ++r) {
      const std::uint8_t label = decode_cifar10(records.data() + r * Cifar10::record, first + r, path, pixels.data());
      const SplitId to = split(first + r);
      writer.append(to, pixels.data(), Cifar10::pixels);
      writer.append_label(to, label);
    }
    progress.add(taken * Cifar10::record);
  }
  writer.add_source({path, static_cast<std::int64_t>(blob.size()), sha.hex()});
  return count;
}

}  // namespace

void prepare_cifar10(const PrepareCifar10Config& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, config.inputs);
  const Batches batches = find_batches(config.inputs);
  for (const auto* files : {&batches.train, &batches.test}) check_output(output.path, output.replace, *files);
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
  DatasetWriter writer(output.path, info, output.replace);
  InputProgress progress(output.progress, (training + test) * Cifar10::record);
  const Permutation order(static_cast<std::uint64_t>(training), config.seed, 0, kernels::Purpose::split);
  std::int64_t before = 0;
  for (const std::string& path : batches.train)
    before += copy_batch(path, writer, progress, [&](std::int64_t i) {
      const bool trains = order(static_cast<std::uint64_t>(before + i)) < static_cast<std::uint64_t>(train);
      return trains ? SplitId::train : SplitId::valid;
    });
  for (const std::string& path : batches.test)
    copy_batch(path, writer, progress, [](std::int64_t) { return SplitId::test; });
  writer.commit(fmt::format(
      "training batches: {} train, {} valid by a permutation of seed {}; {}", thousands(train), thousands(valid),
      config.seed,
      test > 0 ? fmt::format("test batch: {} test", thousands(test)) : "no test_batch was given, so test is empty"));
}

}  // namespace longstride
