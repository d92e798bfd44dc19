// Any files as bytes: the first part of them is train, the next valid, the last test.
#include <algorithm>
#include <vector>

#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/joined_inputs.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"

namespace longstride {

void prepare_bytes(const PrepareBytesConfig& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, config.inputs);
  const SplitRule rule = SplitRule::parse(config.split.empty() ? "0.9,0.05,0.05" : config.split);
  const FoldersOf folders(output.path);  // standard input is kept there too
  JoinedInputs inputs(config, output);
  const SplitCounts counts = rule.divide(inputs.bytes(), inputs.name(), "bytes");
  if (!config.split.empty()) rule.check_shares(counts, inputs.name(), "bytes");

  DatasetInfo info;
  info.kind = DataKind::bytes;
  DatasetWriter writer(output.path, info, output.replace);
  for (const std::string& note : {inputs.misnamed_note(), inputs.packed_note()})
    if (output.note && !note.empty()) output.note(note);
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  for (std::size_t s = 0; s < 3; ++s) {
    for (std::int64_t left = counts[s]; left > 0;) {
      const std::int64_t count = std::min(left, static_cast<std::int64_t>(buffer.size()));
      inputs.read(buffer.data(), static_cast<std::size_t>(count));
      writer.append(static_cast<SplitId>(s), buffer.data(), count);
      left -= count;
    }
  }
  for (const SourceFile& source : inputs.finish()) writer.add_source(source);
  writer.commit(fmt::format("{}: the first {} bytes train, the next {} valid, the last {} test", rule.text(), counts[0],
                            counts[1], counts[2]));
}

}  // namespace longstride
