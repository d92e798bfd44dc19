// Pictures of one size, as sequences of bytes in the order row, column, channel.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "datasets/formats/input_files.h"
#include "datasets/formats/picture_source.h"
#include "datasets/permutation.h"
#include "datasets/prepare/copies.h"
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

// Finds pictures that are copies of others: of the same file, or at the same place in the same file of arrays.
class PictureCopies {
 public:
  PictureCopies(const std::array<Group, 3>& groups, Duplicates rule) {
    std::vector<Fingerprint> prints;
    for (const Group& group : groups)
      for (const auto& [input, source] : group.sources) {
        const std::vector<Fingerprint> more = source->prints();
        sources_.push_back({source.get(), &group - groups.data(), static_cast<std::int64_t>(prints.size()),
                            static_cast<std::int64_t>(more.size())});
        prints.insert(prints.end(), more.begin(), more.end());
      }
    copies_.emplace(
        prints, rule, [this](const std::vector<std::int64_t>& wanted) { return sha256_of(wanted); },
        [this](std::int64_t i) { return source_of(i).source->name_of(i - source_of(i).first); });
    number(static_cast<std::int64_t>(prints.size()));
  }

  const Copies& files() const { return *copies_; }
  // Copies of a file in another group.
  std::int64_t across() const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < files().files(); ++i)
      count += source_of(i).group != source_of(files().first(i)).group ? 1 : 0;
    return count;
  }
  // How often each picture of the first group is taken, without copies.
  const std::vector<std::int64_t>& taken() const { return taken_; }
  // Picture `index` of a source, counted over all groups: its number there, or -1 if it is left out.
  std::int64_t number_of(std::size_t source, std::int64_t index) const {
    const Place& at = sources_[source];
    const std::int64_t file = at.first + (at.whole() ? 0 : index);
    if (files().left_out(file)) return -1;
    return numbers_[static_cast<std::size_t>(files().first(file))] + (at.whole() ? index : 0);
  }

 private:
  struct Place {
    const PictureSource* source;
    std::ptrdiff_t group;
    std::int64_t first, files;  // number of its first file, and how many there are

    bool whole() const { return files == 1; }  // one file holds all of its pictures
  };

  const Place& source_of(std::int64_t file) const {
    const auto next = std::upper_bound(sources_.begin(), sources_.end(), file,
                                       [](std::int64_t f, const Place& place) { return f < place.first; });
    return *(next - 1);
  }

  std::vector<std::string> sha256_of(const std::vector<std::int64_t>& wanted) const {
    std::vector<std::string> sums;
    for (auto next = wanted.begin(); next != wanted.end();) {
      const Place& place = source_of(*next);
      std::vector<std::int64_t> here;
      for (; next != wanted.end() && &source_of(*next) == &place; ++next) here.push_back(*next - place.first);
      for (std::string& sum : place.source->sha256_of(here)) sums.push_back(std::move(sum));
    }
    return sums;
  }

  void number(std::int64_t files) {
    for (std::int64_t file = 0; file < files; ++file) {
      const Place& place = source_of(file);
      numbers_.push_back(static_cast<std::int64_t>(taken_.size()));
      if (place.group != 0 || copies_->first(file) != file) continue;
      taken_.insert(taken_.end(), static_cast<std::size_t>(place.whole() ? place.source->count() : 1),
                    copies_->taken(file));
    }
  }

  std::vector<Place> sources_;
  std::optional<Copies> copies_;
  std::vector<std::int64_t> numbers_, taken_;  // numbers_: of the first picture of every file
};

// Where every picture goes, by its number. In the order of a permutation, the first ones go to train, the next to
// valid.
std::vector<SplitId> divided(const std::vector<std::int64_t>& taken, const SplitCounts& counts, std::uint64_t seed) {
  const Permutation order(taken.size(), seed, 0, kernels::Purpose::split);
  std::vector<std::size_t> at(taken.size());
  for (std::size_t i = 0; i < taken.size(); ++i) at[order(i)] = i;
  std::vector<SplitId> out(taken.size());
  std::int64_t before = 0;
  for (const std::size_t i : at) {
    out[i] = before < counts[0] ? SplitId::train : before < counts[0] + counts[1] ? SplitId::valid : SplitId::test;
    before += taken[i];
  }
  return out;
}

// split(group, i): where the picture with number i goes.
template <class F>
void copy_pictures(const std::array<Group, 3>& groups, const PictureCopies& copies, const PictureRules& rules,
                   DatasetWriter& writer, InputProgress& progress, F&& split) {
  const std::int64_t bytes = rules.side * rules.side * 3;
  std::size_t place = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto& [input, source] : groups[g].sources) {
      std::int64_t index = 0;
      source->read(
          [&](const std::uint8_t* pixels) {
            const std::int64_t number = copies.number_of(place, index++);
            if (pixels != nullptr && number >= 0 && !rules.refusals->final())
              writer.append(split(g, number), pixels, bytes);
          },
          [&](const SourceFile& file) { writer.add_source(file); }, progress);
      ++place;
    }
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

// Changes that the options made to the pictures, for the record; empty if none.
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

std::vector<SplitId> divide(const PictureCopies& copies, const SplitRule& rule, const PrepareImagesConfig& config) {
  const auto& taken = copies.taken();
  const SplitCounts wanted =
      rule.divide(std::accumulate(taken.begin(), taken.end(), std::int64_t{0}), config.inputs[0], "pictures");
  std::vector<SplitId> splits = divided(taken, wanted, config.seed);
  SplitCounts counts{};
  for (std::size_t i = 0; i < taken.size(); ++i) counts[static_cast<std::size_t>(splits[i])] += taken[i];
  if (rule.counted() && counts != wanted)
    throw counts_split_copies(copies.files(), config.inputs[0], rule.text(), counts);
  if (!config.split.empty()) rule.check_shares(counts, config.inputs[0], "pictures");
  return splits;
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
  const PictureCopies copies(groups, config.duplicates);
  const std::vector<SplitId> splits = given ? std::vector<SplitId>() : divide(copies, rule, config);
  if (given)
    warn_of_shared(copies.files(), copies.across(), "pictures", config.duplicates, output);
  else
    output.say(copies.files().note("pictures"));

  refusals.expect(groups[0].count + groups[1].count + groups[2].count);
  DatasetInfo info;
  info.kind = DataKind::images;
  info.rows = info.columns = config.side;
  info.channels = 3;
  const FoldersOf folders(output.path);
  DatasetWriter writer(output.path, info, output.replace);
  InputProgress progress(output.progress, groups[0].bytes + groups[1].bytes + groups[2].bytes);
  copy_pictures(groups, copies, rules, writer, progress, [&](std::size_t group, std::int64_t i) {
    return given ? static_cast<SplitId>(group) : splits[static_cast<std::size_t>(i)];
  });
  refusals.finish();
  const auto pictures = [&](SplitId split) { return thousands(writer.bytes(split) / info.image_bytes()); };
  const std::string numbers = fmt::format("{} train, {} valid, {} test", pictures(SplitId::train),
                                          pictures(SplitId::valid), pictures(SplitId::test));
  writer.commit((given ? "by the inputs given: " + numbers
                       : fmt::format("{}: {} by a permutation of seed {}", rule.text(), numbers, config.seed)) +
                copies.files().record() + changes(config));
}

}  // namespace longstride
