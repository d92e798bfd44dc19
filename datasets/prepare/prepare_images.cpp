// Pictures of one size, as sequences of bytes in the order row, column, channel.
#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "datasets/formats/input_files.h"
#include "datasets/formats/picture_source.h"
#include "datasets/permutation.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/refusals.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

struct Group {
  std::vector<std::pair<std::string, std::unique_ptr<PictureSource>>> sources;  // each with the input that it is from
  std::int64_t count = 0, bytes = 0;
};

Group open_group(const std::vector<std::string>& inputs, const PictureRules& rules) {
  Group group;
  for (const std::string& input : inputs)
    for (auto& source : open_pictures(input, rules)) {
      group.count += source->count();
      group.bytes += source->bytes();
      group.sources.emplace_back(input, std::move(source));
    }
  return group;
}

// UserError if a file is there twice, as in a folder and one within it, or by a link: its pictures would be in two
// splits, or twice in one.
void check_disjoint(const std::array<Group, 3>& groups) {
  std::map<std::string, std::pair<std::string, std::string>> seen;  // the input and the file by where it leads
  RealPaths real_paths;
  for (const Group& group : groups)
    for (const auto& [input, source] : group.sources)
      for (const std::string& file : source->files()) {
        std::error_code gone;
        const std::string real = real_paths.of(file, gone);
        if (gone) continue;  // reading it says so
        const auto [at, fresh] = seen.emplace(real, std::pair{input, file});
        if (fresh) continue;
        const auto& [other_input, other_file] = at->second;
        if (other_input == input) throw given_twice(file, other_file);
        throw user_error("{}: is in {} and in {}; give every picture once", file, other_input, input);
      }
}

// split(i): where picture i of the group goes.
template <class F>
void copy_group(const Group& group, const PictureRules& rules, DatasetWriter& writer, InputProgress& progress,
                F&& split) {
  std::int64_t index = 0;
  const std::int64_t bytes = rules.side * rules.side * 3;
  for (const auto& [input, source] : group.sources)
    source->read(
        [&](const std::uint8_t* pixels) {
          const SplitId to = split(index++);
          if (pixels != nullptr && !rules.refusals->final()) writer.append(to, pixels, bytes);
        },
        [&](const SourceFile& file) { writer.add_source(file); }, progress);
}

// All inputs.
std::vector<std::string> check_config(const PrepareImagesConfig& config) {
  if (config.inputs.empty())
    throw user_error("--input is needed: a folder, an archive, or .npy or .npz files of pictures");
  if (config.side < 1 || config.side > 4096) throw user_error("--size is {}, but must be 1 to 4096", config.side);
  std::vector<std::string> all;
  for (const auto* inputs : {&config.inputs, &config.valid_inputs, &config.test_inputs})
    all.insert(all.end(), inputs->begin(), inputs->end());
  check_distinct(all);
  return all;
}

// What the options did to the pictures, for the record; empty if nothing.
std::string changes(const PrepareImagesConfig& config) {
  std::string out;
  if (config.fit != PictureFit::exact)
    out = fmt::format("; scaled to {0} x {0} (bicubic, {1})", config.side,
                      config.fit == PictureFit::crop ? "cropped" : "padded");
  if (config.alpha == PictureAlpha::drop) out += "; transparency ignored";
  if (config.alpha == PictureAlpha::black) out += "; transparency over black";
  if (config.alpha == PictureAlpha::white) out += "; transparency over white";
  return out;
}

}  // namespace

void prepare_images(const PrepareImagesConfig& config, const PrepareOutput& output) {
  const SplitRule rule = SplitRule::of(config, "0.9,0.05,0.05");
  const std::vector<std::string> inputs = check_config(config);
  check_output(output.path, output.replace, inputs);
  Refusals refusals("pictures", config.skip_others, output.note);
  const PictureRules rules = {config.side, config.convert_grey, config.skip_others, output.note,
                              config.fit,  config.alpha,        output.progress,    &refusals};
  const std::array<Group, 3> groups = {open_group(config.inputs, rules), open_group(config.valid_inputs, rules),
                                       open_group(config.test_inputs, rules)};
  for (const Group& group : groups)
    for (const auto& [input, source] : group.sources) check_output(output.path, output.replace, source->files());
  check_disjoint(groups);
  const bool given = config.splits_given();
  const SplitCounts counts = given ? SplitCounts{groups[0].count, groups[1].count, groups[2].count}
                                   : rule.divide(groups[0].count, config.inputs[0], "pictures");
  if (!config.split.empty()) rule.check_shares(counts, config.inputs[0], "pictures");

  refusals.expect(groups[0].count + groups[1].count + groups[2].count);
  DatasetInfo info;
  info.kind = DataKind::images;
  info.rows = info.columns = config.side;
  info.channels = 3;
  const FoldersOf folders(output.path);
  DatasetWriter writer(output.path, info, output.replace);
  InputProgress progress(output.progress, groups[0].bytes + groups[1].bytes + groups[2].bytes);
  const Permutation order(static_cast<std::uint64_t>(groups[0].count), config.seed, 0, kernels::Purpose::split);
  copy_group(groups[0], rules, writer, progress, [&](std::int64_t i) {
    if (given) return SplitId::train;
    const auto place = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
    return place < counts[0] ? SplitId::train : place < counts[0] + counts[1] ? SplitId::valid : SplitId::test;
  });
  copy_group(groups[1], rules, writer, progress, [](std::int64_t) { return SplitId::valid; });
  copy_group(groups[2], rules, writer, progress, [](std::int64_t) { return SplitId::test; });
  refusals.finish();
  const auto pictures = [&](SplitId s) { return thousands(writer.bytes(s) / (config.side * config.side * 3)); };
  const std::string numbers = fmt::format("{} train, {} valid, {} test", pictures(SplitId::train),
                                          pictures(SplitId::valid), pictures(SplitId::test));
  writer.commit((given ? "by the inputs given: " + numbers
                       : fmt::format("{}: {} by a permutation of seed {}", rule.text(), numbers, config.seed)) +
                changes(config));
}

}  // namespace longstride
