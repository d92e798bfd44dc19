// Sound as bytes: one channel, one sampling rate, mu-law. Files are kept whole: each goes into one split, and the
// boundaries between them are stored.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "datasets/formats/audio.h"
#include "datasets/formats/byte_input.h"
#include "datasets/formats/input_files.h"
#include "datasets/formats/mu_law.h"
#include "datasets/formats/sound/other_sound.h"
#include "datasets/formats/wav.h"
#include "datasets/permutation.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/refusals.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

struct Track {
  std::string path;
  std::int64_t bytes = 0;
  double seconds = 0;
  SplitId split = SplitId::train;
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
      tracks.push_back({path, bytes_of_files({path}), seconds, split});
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
// of its duration.
void divide(std::vector<Track>& tracks, const std::array<double, 3>& fractions, std::uint64_t seed) {
  double total = 0;
  for (const Track& track : tracks) total += track.seconds;
  std::array<double, 3> missing;
  std::vector<std::size_t> first;
  for (std::size_t s = 0; s < 3; ++s) {
    missing[s] = fractions[s] * total;
    if (fractions[s] > 0) first.push_back(s);
  }
  const Permutation order(tracks.size(), seed, 0, kernels::Purpose::split);
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    Track& track = tracks[order(t)];
    const auto most = static_cast<std::size_t>(std::max_element(missing.begin(), missing.end()) - missing.begin());
    const std::size_t to = t < first.size() ? first[t] : most;
    track.split = static_cast<SplitId>(to);
    missing[to] -= track.seconds;
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
    note(fmt::format("{}: reaches {:.4g} times full scale, the most of {} file(s) that are beyond it and are clipped{}",
                     loudest_, peak_, thousands(files_),
                     peak_ > 2 ? "; if they hold whole numbers as floats, divide them by full scale first" : ""));
  }

 private:
  std::int64_t files_ = 0;
  float peak_ = 1;
  std::string loudest_;
};

// Returns the largest magnitude of its samples.
float copy_track(const Track& track, std::int64_t rate, DatasetWriter& writer, InputProgress& progress) {
  constexpr std::int64_t at_once = 1 << 15;
  const auto file = open_audio(track.path);
  const auto resampler = file->rate() == rate ? nullptr : make_resampler(file->rate(), rate);
  std::vector<float> mono(at_once), resampled;
  std::vector<std::uint8_t> levels;
  std::size_t written = 0;
  const auto write = [&](const float* samples, std::size_t count) {
    levels.resize(count);
    std::transform(samples, samples + count, levels.begin(), mu_law_encode);
    writer.append(track.split, levels.data(), static_cast<std::int64_t>(count));
    written += count;
  };
  std::int64_t done = 0, told = 0;
  float peak = 0;
  for (std::int64_t got; (got = file->read(mono.data(), at_once)) > 0;) {
    for (std::int64_t i = 0; i < got; ++i) peak = std::max(peak, std::abs(mono[static_cast<std::size_t>(i)]));
    if (resampler != nullptr) {
      resampler->process(mono.data(), got, resampled);
      write(resampled.data(), resampled.size());
    } else {
      write(mono.data(), static_cast<std::size_t>(got));
    }
    done += got;
    const auto now = static_cast<std::int64_t>(static_cast<double>(track.bytes) * static_cast<double>(done) /
                                               static_cast<double>(file->frames()));
    progress.add(now - told);
    told = now;
  }
  if (resampler != nullptr) {
    resampler->finish(resampled);
    write(resampled.data(), resampled.size());
  }
  if (written == 0)
    throw user_error("{}: has {} sample(s) at {} per second, which are none at --rate {}; leave it out", track.path,
                     thousands(done), thousands(file->rate()), thousands(rate));
  writer.end_file(track.split);
  writer.add_source({track.path, track.bytes, sha256_of_file(track.path)});
  return peak;
}

std::vector<Track> collect(const PrepareAudioConfig& config, const SplitRule& rule, const PrepareOutput& output) {
  if (config.inputs.empty()) throw user_error("--input is needed: a folder of sound files, or the files");
  if (config.rate < 1000 || config.rate > 192000)
    throw user_error("--rate is {}, but must be 1,000 to 192,000 samples per second", config.rate);
  if (rule.counted())
    throw user_error(
        "--split is '{}', but sound is divided by file; give fractions of the duration such as 0.8,0.1,0.1",
        rule.text());
  std::vector<std::string> all = config.inputs;
  for (const auto* more : {&config.valid_inputs, &config.test_inputs})
    all.insert(all.end(), more->begin(), more->end());
  check_distinct(all);
  std::vector<Track> tracks = find_tracks(config.inputs, SplitId::train, config.skip_others, output);
  if (!config.splits_given()) divide(tracks, rule.fractions(), config.seed);
  if (!config.split.empty()) {
    SplitCounts files{};
    for (const Track& track : tracks) ++files[static_cast<std::size_t>(track.split)];
    rule.check_shares(files, config.inputs[0], "sound files");
  }
  for (const auto& [inputs, split] :
       {std::pair{&config.valid_inputs, SplitId::valid}, {&config.test_inputs, SplitId::test}})
    for (Track& track : find_tracks(*inputs, split, config.skip_others, output)) tracks.push_back(std::move(track));
  std::vector<std::string> paths;
  for (const Track& track : tracks) paths.push_back(track.path);
  check_distinct(paths);
  return tracks;
}

}  // namespace

void prepare_audio(const PrepareAudioConfig& config, const PrepareOutput& output) {
  const SplitRule rule = SplitRule::of(config, "0.8,0.1,0.1");
  check_output(output.path, output.replace, {});
  const std::vector<Track> tracks = collect(config, rule, output);
  std::vector<std::string> inputs;
  for (const Track& track : tracks) inputs.push_back(track.path);
  check_output(output.path, output.replace, inputs);
  DatasetInfo info;
  info.kind = DataKind::audio;
  info.rate = config.rate;
  info.encoding = "mu-law 255";
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
  writer.commit(config.splits_given() ? "files by the inputs given: " + files
                                      : fmt::format("{} of the duration: {} whole files by a permutation of seed {}",
                                                    rule.text(), files, config.seed));
}

void decode_audio(const DecodeAudioConfig& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, {config.dataset});
  const auto dataset = Dataset::open(config.dataset);
  if (dataset->info().kind != DataKind::audio)
    throw user_error("{}: holds {}, but --decode makes a WAV file of audio", config.dataset,
                     name_of(dataset->info().kind));
  if (dataset->info().encoding != "mu-law 255")
    throw user_error("{}: its encoding is '{}', but only mu-law 255 can be decoded", config.dataset,
                     dataset->info().encoding);
  const auto files = dataset->split(config.split);
  if (config.index < 0 || config.index >= files->sequences())
    throw user_error("{}: has {} file(s) in '{}', but --index is {}; count them from 0", config.dataset,
                     files->sequences(), config.split, config.index);
  std::vector<std::uint8_t> levels(static_cast<std::size_t>(files->length(config.index)));
  files->read(config.index, 0, files->length(config.index), levels.data());
  const FoldersOf folders(output.path);
  write_wav(output.path, mu_law_decode(levels), dataset->info().rate);
}

}  // namespace longstride
