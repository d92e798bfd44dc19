// Any file as bytes: the first part is train, the next valid, the last test.
#include <algorithm>
#include <vector>

#include "datasets/formats/byte_input.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"

namespace longstride {
namespace {

void refuse_compressed(const std::string& path) {
  const std::string format = recognised_format(FileBlob(path));
  for (const char* compressed : {"gzip", "xz", "bzip2", "zstd", "zip", "7z", "lz4"})
    if (format == compressed)
      throw user_error(
          "{}: is compressed ({}), so a model would learn its codes; unpack it first, or use its bytes as they are "
          "with --raw",
          path, format);
}

}  // namespace

void prepare_bytes(const PrepareBytesConfig& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, {config.input});
  const SplitRule rule = SplitRule::parse(config.split.empty() ? "0.9,0.05,0.05" : config.split);
  if (!config.raw) refuse_compressed(config.input);
  const InputFile file(config.input);
  const auto total = static_cast<std::int64_t>(file.size());
  if (total == 0) throw user_error("{}: is empty; there is nothing to prepare", config.input);
  const SplitCounts counts = rule.divide(total, config.input, "bytes");
  if (!config.split.empty()) rule.check_shares(counts, config.input, "bytes");

  DatasetInfo info;
  info.kind = DataKind::bytes;
  DatasetWriter writer(output.path, info, output.replace);
  Sha256 sha;
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  std::int64_t at = 0;
  for (std::size_t s = 0; s < 3; ++s) {
    for (std::int64_t left = counts[s]; left > 0;) {
      const std::int64_t count = std::min(left, static_cast<std::int64_t>(buffer.size()));
      file.read(static_cast<std::uint64_t>(at), buffer.data(), static_cast<std::size_t>(count));
      sha.update(buffer.data(), static_cast<std::size_t>(count));
      writer.append(static_cast<SplitId>(s), buffer.data(), count);
      at += count, left -= count;
      if (output.progress) output.progress(at, total);
    }
  }
  writer.add_source({config.input, total, sha.hex()});
  writer.commit(fmt::format("{}: the first {} bytes train, the next {} valid, the last {} test", rule.text(), counts[0],
                            counts[1], counts[2]));
}

}  // namespace longstride
