// Sound files as one channel of samples, through libsndfile (WAV, AIFF, FLAC, Ogg with Vorbis or Opus, MP3 ..) and
// soxr. In a build without them, no_audio.cpp replaces the reader and says so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace longstride {

class AudioFile {
 public:
  virtual ~AudioFile() = default;
  virtual std::int64_t frames() const = 0;  // samples of each channel
  virtual std::int64_t rate() const = 0;    // samples per second
  virtual std::int64_t channels() const = 0;
  virtual bool states_length() const = 0;  // false: the header has a placeholder, and all that follows is sound
  // The mean of the channels over the next frames, at most `count` of them; 0 at the end. Full scale is 1, which floats
  // may exceed. UserError if the file ends before frames() or is damaged.
  virtual std::int64_t read(float* mono, std::int64_t count) = 0;
};

// UserError if the file is not a sound file, is cut short or holds no sound. The content decides, whatever the name.
std::unique_ptr<AudioFile> open_audio(const std::string& path);

// True if libsndfile opens it.
bool begins_like_sound(const std::string& path);

// Band-limited change of rate (soxr, very high quality, linear phase: nothing is shifted in time).
class Resampler {
 public:
  virtual ~Resampler() = default;
  // Replaces `out` with the samples that the next `count` of input complete; in total, count * to / from.
  virtual void process(const float* in, std::int64_t count, std::vector<float>& out) = 0;
  virtual void finish(std::vector<float>& out) = 0;  // the last ones
};
std::unique_ptr<Resampler> make_resampler(std::int64_t from, std::int64_t to);

}  // namespace longstride
