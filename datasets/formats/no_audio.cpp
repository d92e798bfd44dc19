// Replaces audio_sndfile.cpp if libsndfile or soxr was not found at configure time.
#include "datasets/formats/audio.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

UserError absent(const std::string& what) {
  return user_error(
      "{}: reading sound needs libsndfile and soxr, which this build lacks; install libsndfile1-dev and libsoxr-dev "
      "and configure again",
      what);
}

}  // namespace

std::unique_ptr<AudioFile> open_audio(const std::string& path) { throw absent(path); }

bool begins_like_sound(const std::string& path) { throw absent(path); }

std::unique_ptr<Resampler> make_resampler(std::int64_t from, std::int64_t to) {
  throw absent(fmt::format("{} to {} samples per second", from, to));
}

}  // namespace longstride
