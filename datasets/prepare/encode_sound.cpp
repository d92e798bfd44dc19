#include "datasets/prepare/encode_sound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "datasets/formats/mu_law.h"

namespace longstride {

float encode_sound(AudioFile& file, std::int64_t rate, const LevelSink& sink,
                   const std::function<void(std::int64_t)>& done) {
  constexpr std::int64_t at_once = 1 << 15;
  const auto resampler = file.rate() == rate ? nullptr : make_resampler(file.rate(), rate);
  std::vector<float> mono(at_once), resampled;
  std::vector<std::uint8_t> levels;
  const auto write = [&](const float* samples, std::size_t count) {
    levels.resize(count);
    std::transform(samples, samples + count, levels.begin(), mu_law_encode);
    return sink(levels.data(), static_cast<std::int64_t>(count));
  };
  std::int64_t read = 0;
  float peak = 0;
  for (std::int64_t got; (got = file.read(mono.data(), at_once)) > 0;) {
    for (std::int64_t i = 0; i < got; ++i) peak = std::max(peak, std::abs(mono[static_cast<std::size_t>(i)]));
    if (resampler != nullptr) resampler->process(mono.data(), got, resampled);
    const bool more = resampler != nullptr ? write(resampled.data(), resampled.size())
                                           : write(mono.data(), static_cast<std::size_t>(got));
    if (!more) return peak;
    if (done) done(read += got);
  }
  if (resampler != nullptr) {
    resampler->finish(resampled);
    write(resampled.data(), resampled.size());
  }
  return peak;
}

}  // namespace longstride
