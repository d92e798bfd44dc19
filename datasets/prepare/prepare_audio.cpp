// Sound as bytes: one channel, one sampling rate, mu-law. Files are kept whole: each goes into one split, and the
// boundaries between them are stored. With `cut` a file may be divided in time.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "datasets/formats/audio.h"
#include "datasets/formats/byte_input.h"
#include "datasets/formats/input_files.h"
#include "datasets/formats/mu_law.h"
#include "datasets/formats/sound/other_sound.h"
#include "datasets/formats/wav.h"
#include "datasets/permutation.h"
#include "datasets/prepare/copies.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/encode_sound.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/refusals.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// Where valid and test begin in a file, in seconds: all before goes to the split before.
using TimeCuts = std::array<double, 2>;
constexpr double never = std::numeric_limits<double>::infinity();

constexpr TimeCuts whole_in(SplitId split) {
  return split == SplitId::train   ? TimeCuts{never, never}
         : split == SplitId::valid ? TimeCuts{0, never}
                                   : TimeCuts{0, 0};
}

struct Track {
  std::string path;
  std::int64_t bytes = 0;
  double seconds = 0;
  TimeCuts cuts = whole_in(SplitId::train);

  double seconds_in(std::size_t split) const {
    const std::array<double, 4> at = {0, std::min(cuts[0], seconds), std::min(cuts[1], seconds), seconds};
    return at[split + 1] - at[split];
  }
};

// A file that is named like sound and cannot be read is an error, not left out.
bool named_like_sound(const std::string& path) {
  constexpr std::string_view extensions[] = {"wav", "rf64", "w64",  "flac", "ogg", "oga",  "opus", "mp3", "mp2",
                                             "aif", "aiff", "aifc", "au",   "snd", "nist", "sph",  "voc", "caf"};
  return std::find(std::begin(extensions), std::end(extensions), lower_extension(path)) != std::end(extensions);
}

std::vector<std::string> sound_files(const std::string& folder, bool skip_others, const PrepareOutput& output) {
  std::vector<std::string> found;
  LeftOut others;
  for (const std::string& path : files_under(folder)) {
    output.looked_at(0);
    if (named_like_sound(path) || named_like_other_sound(path) || begins_like_sound(path))
      found.push_back(path);
    else
      others.add(path);
  }
  if (found.empty()) throw user_error("{}: holds no sound files; give a folder of WAV, FLAC, Ogg or MP3 files", folder);
  others.report(folder, found, "sound files", skip_others, output.note);
  return found;
}

std::vector<Track> find_tracks(const std::vector<std::string>& inputs, SplitId split, bool skip_others,
                               const PrepareOutput& output) {
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    if (!is_folder(input)) {
      paths.push_back(input);
      continue;
    }
    for (std::string& path : sound_files(input, skip_others, output)) paths.push_back(std::move(path));
  }
  std::vector<Track> tracks;
  Refusals refusals("sound files", skip_others, output.note);
  refusals.expect(static_cast<std::int64_t>(paths.size()));
  std::vector<std::string> unstated;
  std::int64_t sum = 0;
  for (const std::string& path : paths) {
    try {
      const auto file = open_audio(path);
      const double seconds = static_cast<double>(file->frames()) / static_cast<double>(file->rate());
      tracks.push_back({path, bytes_of_files({path}), seconds, whole_in(split)});
      if (!file->states_length()) unstated.push_back(path);
    } catch (const UserError& error) {
      refusals.add(error.what());
      continue;
    }
    output.looked_at(sum += tracks.back().bytes);
  }
  refusals.finish();
  if (!unstated.empty() && output.note)
    output.note(fmt::format("{}{}: no length in the header, as of files made by a pipe; all that follows is read",
                            unstated[0],
                            unstated.size() > 1 ? fmt::format(" and {} more", thousands(unstated.size() - 1)) : ""));
  return tracks;
}

// In a seeded order, every split with a share first gets one file; each further file goes to the split that lacks most
// of its duration. `tracks`: those that are no copies, with how often each is taken.
struct Divided {
  Track* track;
  double taken;
};

double duration(const std::vector<Divided>& tracks) {
  double total = 0;
  for (const auto& [track, taken] : tracks) total += track->seconds * taken;
  return total;
}

void divide(const std::vector<Divided>& tracks, const std::array<double, 3>& fractions, std::uint64_t seed) {
  const double total = duration(tracks);
  std::array<double, 3> missing;
  std::vector<std::size_t> first;
  for (std::size_t s = 0; s < 3; ++s) {
    missing[s] = fractions[s] * total;
    if (fractions[s] > 0) first.push_back(s);
  }
  const Permutation order(tracks.size(), seed, 0, kernels::Purpose::split);
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    const auto& [track, taken] = tracks[order(t)];
    const auto most = static_cast<std::size_t>(std::max_element(missing.begin(), missing.end()) - missing.begin());
    const std::size_t to = t < first.size() ? first[t] : most;
    track->cuts = whole_in(static_cast<SplitId>(to));
    missing[to] -= track->seconds * taken;
  }
}

// The files in a seeded order, end to end, are cut in two places, each moved to the next multiple of `step` seconds in
// its file, of which the last piece has the rest. So at most two files are in several splits, in the order of time.
void cut_in_time(const std::vector<Divided>& tracks, const std::array<double, 3>& fractions, double step,
                 std::uint64_t seed) {
  const double total = duration(tracks);
  const std::array<double, 2> ends = {fractions[0] * total,
                                      fractions[2] > 0 ? (fractions[0] + fractions[1]) * total : never};
  const Permutation order(tracks.size(), seed, 0, kernels::Purpose::split);
  double before = 0;
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    const auto& [track, taken] = tracks[order(t)];
    const double pieces = std::max(1.0, std::floor(track->seconds / step));
    for (std::size_t c = 0; c < 2; ++c) {
      const double place = std::clamp((ends[c] - before) / taken, 0.0, track->seconds);
      const double piece =
          pieces == 1 ? std::round(place / track->seconds) : std::min(std::round(place / step), pieces);
      track->cuts[c] = piece == pieces ? never : piece * step;
    }
    before += track->seconds * taken;
  }
}

// Samples beyond full scale, which mu-law has no levels for: of files of floats, and of decoders that overshoot.
class Clipping {
 public:
  void add(const std::string& path, float peak) {
    if (peak <= 1) return;
    ++files_;
    if (peak <= peak_) return;
    peak_ = peak;
    loudest_ = path;
  }
  void report(const PrepareNote& note) const {
    if (files_ == 0 || !note) return;
    note(fmt::format("{}: reaches {:.4g} times full scale, which is clipped, as in {} in all{}", loudest_, peak_,
                     counted(files_, "file"),
                     peak_ > 2 ? "; if they hold whole numbers as floats, divide them by full scale first" : ""));
  }

 private:
  std::int64_t files_ = 0;
  float peak_ = 1;
  std::string loudest_;
};

// Returns the largest magnitude of its samples.
float copy_track(const Track& track, std::int64_t rate, DatasetWriter& writer, InputProgress& progress) {
  const auto file = open_audio(track.path);
  std::array<std::int64_t, 4> at = {0, INT64_MAX, INT64_MAX, INT64_MAX};
  for (std::size_t c = 0; c < 2; ++c)
    if (track.cuts[c] != never) at[c + 1] = std::llround(track.cuts[c] * static_cast<double>(rate));
  std::array<std::int64_t, 3> in_split{};
  std::int64_t written = 0, told = 0;
  const auto write = [&](const std::uint8_t* levels, std::int64_t count) {
    for (std::size_t s = 0; s < 3; ++s) {
      const std::int64_t begin = std::max(at[s], written), end = std::min(at[s + 1], written + count);
      if (begin >= end) continue;
      writer.append(static_cast<SplitId>(s), levels + (begin - written), end - begin);
      in_split[s] += end - begin;
    }
    written += count;
    return true;
  };
  const float peak = encode_sound(*file, rate, write, [&](std::int64_t done) {
    const auto now = static_cast<std::int64_t>(static_cast<double>(track.bytes) * static_cast<double>(done) /
                                               static_cast<double>(file->frames()));
    progress.add(now - told);
    told = now;
  });
  if (written == 0)
    throw user_error("{}: has {} at {} per second, which is none at --rate {}; leave it out", track.path,
                     counted(file->frames(), "sample"), thousands(file->rate()), thousands(rate));
  for (std::size_t s = 0; s < 3; ++s)
    if (in_split[s] > 0) writer.end_file(static_cast<SplitId>(s));
  writer.add_source({track.path, track.bytes, sha256_of_file(track.path)});
  return peak;
}

void check_config(const PrepareAudioConfig& config, const SplitRule& rule) {
  if (config.inputs.empty()) throw user_error("--input is needed: a folder of sound files, or the files");
  if (config.rate < 1000 || config.rate > 192000)
    throw user_error("--rate is {}, but must be 1,000 to 192,000 samples per second", config.rate);
  if (rule.counted())
    throw user_error(
        "--split is '{}', but sound is divided by file; give fractions of the duration such as 0.8,0.1,0.1",
        rule.text());
  if (config.cut > 0 && config.splits_given())
    throw user_error("--cut is {:g}, but with --valid-input or --test-input nothing is divided; leave --cut out",
                     config.cut);
  std::vector<std::string> all = config.inputs;
  for (const auto* more : {&config.valid_inputs, &config.test_inputs})
    all.insert(all.end(), more->begin(), more->end());
  check_distinct(all);
}

// Divides what --input holds. A copy is divided like the first file with its content.
void divide(std::vector<Track>& tracks, const Copies& copies, const PrepareAudioConfig& config, const SplitRule& rule,
            const PrepareOutput& output) {
  std::vector<Divided> firsts;
  for (std::size_t i = 0; i < tracks.size(); ++i)
    if (const std::int64_t taken = copies.taken(static_cast<std::int64_t>(i)); taken > 0)
      firsts.push_back({&tracks[i], static_cast<double>(taken)});
  if (config.cut > 0)
    cut_in_time(firsts, rule.fractions(), config.cut, config.seed);
  else
    divide(firsts, rule.fractions(), config.seed);
  for (std::size_t i = 0; i < tracks.size(); ++i)
    tracks[i].cuts = tracks[static_cast<std::size_t>(copies.first(static_cast<std::int64_t>(i)))].cuts;

  SplitCounts files{};
  std::array<double, 3> shares{};
  for (const auto& [track, taken] : firsts)
    for (std::size_t s = 0; s < 3; ++s) {
      files[s] += track->seconds_in(s) > 0 ? 1 : 0;
      shares[s] += track->seconds_in(s) * taken / duration(firsts);
    }
  for (std::size_t s = 0; s < 3; ++s)
    if (config.cut > 0 && rule.fractions()[s] > 0 && files[s] == 0)
      throw user_error("{}: --cut {:g} leaves none of the sound for '{}'; cut at fewer seconds", config.inputs[0],
                       config.cut, split_names[s]);
  if (!config.split.empty()) rule.check_shares(files, config.inputs[0], "sound files");
  constexpr double near = 0.1;
  for (std::size_t s = 0; s < 3; ++s)
    if (std::abs(shares[s] - rule.fractions()[s]) > near)
      return output.say(fmt::format(
          "{}: train, valid and test have {:.0f}%, {:.0f}% and {:.0f}% of the duration, because {} "
          "cannot be divided by {}; {}",
          config.inputs[0], 100 * shares[0], 100 * shares[1], 100 * shares[2], counted(std::ssize(tracks), "file"),
          rule.text(), config.cut > 0 ? "cut at fewer seconds" : "--cut SECONDS divides long ones in time"));
}

std::vector<Track> collect(const PrepareAudioConfig& config, const SplitRule& rule, const PrepareOutput& output,
                           std::string& record) {
  check_config(config, rule);
  std::vector<Track> tracks;
  std::vector<std::string> paths;
  std::vector<Fingerprint> prints;
  for (const auto& [inputs, split] : {std::pair{&config.inputs, SplitId::train},
                                      {&config.valid_inputs, SplitId::valid},
                                      {&config.test_inputs, SplitId::test}})
    for (Track& track : find_tracks(*inputs, split, config.skip_others, output)) {
      paths.push_back(track.path);
      prints.push_back(fingerprint_of(track.path));
      tracks.push_back(std::move(track));
    }
  check_distinct(paths);
  const auto path = [&](std::int64_t i) { return paths[static_cast<std::size_t>(i)]; };
  const auto sums = [&](const std::vector<std::int64_t>& wanted) {
    std::vector<std::string> out;
    for (const std::int64_t i : wanted) {
      output.looked_at(0);
      out.push_back(sha256_of_file(path(i)));
    }
    return out;
  };
  const Copies copies(prints, config.duplicates, sums, path);
  record = copies.record();
  std::int64_t across = 0;
  for (std::size_t i = 0; i < tracks.size(); ++i)
    across += tracks[i].cuts != tracks[static_cast<std::size_t>(copies.first(static_cast<std::int64_t>(i)))].cuts;
  if (config.splits_given()) {
    warn_of_shared(copies, across, "sound files", config.duplicates, output);
  } else {
    output.say(copies.note("sound files"));
    divide(tracks, copies, config, rule, output);
  }
  std::vector<Track> taken;
  for (std::size_t i = 0; i < tracks.size(); ++i)
    if (!copies.left_out(static_cast<std::int64_t>(i))) taken.push_back(std::move(tracks[i]));
  return taken;
}

}  // namespace

void prepare_audio(const PrepareAudioConfig& config, const PrepareOutput& output) {
  const SplitRule rule = SplitRule::of(config, "0.8,0.1,0.1");
  check_output(output.path, output.replace, {});
  std::string record;
  const std::vector<Track> tracks = collect(config, rule, output, record);
  std::vector<std::string> inputs;
  for (const Track& track : tracks) inputs.push_back(track.path);
  check_output(output.path, output.replace, inputs);
  DatasetInfo info;
  info.kind = DataKind::audio;
  info.rate = config.rate;
  info.encoding = mu_law_encoding;
  const FoldersOf folders(output.path);
  DatasetWriter writer(output.path, info, output.replace);
  std::int64_t total = 0;
  for (const Track& track : tracks) total += track.bytes;
  InputProgress progress(output.progress, total);
  Clipping clipping;
  for (const Track& track : tracks) clipping.add(track.path, copy_track(track, config.rate, writer, progress));
  clipping.report(output.note);
  const std::string files = fmt::format("{} train, {} valid, {} test", writer.files(SplitId::train),
                                        writer.files(SplitId::valid), writer.files(SplitId::test));
  const std::string whole =
      config.cut > 0 ? fmt::format("files, cut at multiples of {:g} s,", config.cut) : "whole files";
  writer.commit((config.splits_given() ? "files by the inputs given: " + files
                                       : fmt::format("{} of the duration: {} {} by a permutation of seed {}",
                                                     rule.text(), files, whole, config.seed)) +
                record);
}

void decode_audio(const DecodeAudioConfig& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, {config.dataset});
  const auto dataset = Dataset::open(config.dataset);
  if (dataset->info().kind != DataKind::audio)
    throw user_error("{}: holds {}, but --decode makes a WAV file of audio", config.dataset,
                     name_of(dataset->info().kind));
  if (dataset->info().encoding != mu_law_encoding)
    throw user_error("{}: its encoding is '{}', but only mu-law 255 can be decoded", config.dataset,
                     dataset->info().encoding);
  const auto files = dataset->split(config.split);
  if (config.index < 0 || config.index >= files->sequences())
    throw user_error("{}: has {} in '{}', but --index is {}; count them from 0", config.dataset,
                     counted(files->sequences(), "file"), config.split, config.index);
  std::vector<std::uint8_t> levels(static_cast<std::size_t>(files->length(config.index)));
  files->read(config.index, 0, files->length(config.index), levels.data());
  const FoldersOf folders(output.path);
  write_wav(output.path, mu_law_decode(levels), dataset->info().rate);
}

}  // namespace longstride
