#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>

#include "datasets/formats/audio.h"
#include "datasets/formats/byte_input.h"
#include "datasets/formats/sound/mpeg_frames.h"
#include "datasets/formats/sound/other_sound.h"
#include "datasets/formats/sound/stated_length.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t most_channels = 256;
constexpr std::int64_t lowest_rate = 1000, highest_rate = 768000;  // a wrong one would make hours of a second

struct CloseSound {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using OpenSound = std::unique_ptr<SNDFILE, CloseSound>;

// A file as libsndfile reads it. Without the name, whose ending would make it take any bytes for sound.
class Input {
 public:
  explicit Input(const std::string& path) : blob_(path) {}

  const Blob& blob() const { return blob_; }
  // From now on, the four bytes at `at` are the size of all that follows; 0: nothing changes.
  void set_size(std::uint64_t at) { size_at_ = at; }
  // Null if libsndfile cannot read it. The result must not outlive this. An MP3 file need not state its length, which
  // libsndfile then guesses from the file's, and reads no more than that. Without an end to seek to it cannot guess,
  // and info.frames is SF_COUNT_MAX.
  OpenSound open(SF_INFO& info) {
    is_text_ = is_text_like_mpeg();
    if (is_text_) return nullptr;
    OpenSound file = open_again(info);
    if (file == nullptr || (info.format & SF_FORMAT_TYPEMASK) != mpeg) return file;
    file.reset();
    has_end_ = false;
    return open_again(info);
  }
  // Why there is no result. Some of libsndfile's reasons span several lines.
  std::string problem() const {
    if (is_text_) return "one frame of MPEG audio without a second";
    std::string text = sf_strerror(nullptr);
    text = text.substr(0, text.find('\n'));
    while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
    return text;
  }
  // An error while the file was read must not pass through libsndfile, and says more than libsndfile's.
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static constexpr int mpeg = 0x230000;  // SF_FORMAT_MPEG, which libsndfile before 1.1 does not know

  // Text in UTF-16 begins like a frame of MPEG audio. libmpg123 would say at length, on standard error, what it misses.
  bool is_text_like_mpeg() const {
    BlobWindow window(blob_);
    const std::uint64_t start = after_tags(window);
    return begins_like_mpeg(window, start) && !has_mpeg_frames(window, start);
  }

  OpenSound open_again(SF_INFO& info) {
    static SF_VIRTUAL_IO calls = {size, seek, read, nullptr, tell};
    info = {};
    at_ = 0;
    return OpenSound(sf_open_virtual(&calls, SFM_READ, &info, this));
  }

  static Input& of(void* self) { return *static_cast<Input*>(self); }
  static sf_count_t size(void* self) { return static_cast<sf_count_t>(of(self).blob_.size()); }
  static sf_count_t tell(void* self) { return of(self).at_; }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    Input& input = of(self);
    if (whence == SEEK_END && !input.has_end_) return -1;
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? input.at_ : size(self);
    input.at_ = std::clamp<sf_count_t>(offset, -base, size(self) - base) + base;
    return input.at_;
  }
  static sf_count_t read(void* out, sf_count_t count, void* self) {
    Input& input = of(self);
    const sf_count_t taken = std::clamp<sf_count_t>(count, 0, size(self) - input.at_);
    try {
      input.blob_.read(static_cast<std::uint64_t>(input.at_), out, static_cast<std::size_t>(taken));
    } catch (...) {
      input.failure_ = std::current_exception();
      return 0;
    }
    for (std::uint64_t byte = 0; input.size_at_ > 0 && byte < 4; ++byte)
      if (const auto at = static_cast<sf_count_t>(input.size_at_ + byte) - input.at_; at >= 0 && at < taken)
        static_cast<std::uint8_t*>(out)[at] =
            static_cast<std::uint8_t>((input.blob_.size() - input.size_at_ - 4) >> (8 * byte));
    input.at_ += taken;
    return taken;
  }

  FileBlob blob_;
  sf_count_t at_ = 0;
  std::uint64_t size_at_ = 0;
  bool has_end_ = true, is_text_ = false;
  std::exception_ptr failure_;
};

class SoundFile final : public AudioFile {
 public:
  explicit SoundFile(const std::string& path) : path_(path), input_(path) {
    const SoundLength length = check_complete(input_.blob());
    states_length_ = length.stated;
    input_.set_size(length.zero_at);
    file_ = input_.open(info_);
    input_.check();
    const std::string format = file_ == nullptr ? recognised_format(input_.blob()) : "";
    for (const char* packed : {"tar", "zip", "gzip", "xz", "bzip2", "zstd", "7z", "rar"})
      if (format == packed) throw user_error("{}: is packed ({}); unpack it to a folder and use that", path, format);
    if (file_ == nullptr) throw no_sound();
    if (info_.channels > 0 && info_.channels <= most_channels && info_.frames == SF_COUNT_MAX) count_frames();
    if (info_.frames <= 0 || info_.samplerate <= 0 || info_.channels <= 0 || info_.channels > most_channels)
      throw user_error("{}: has {} of {} at {} per second, which is not sound; leave it out", path,
                       counted(info_.frames, "sample"), counted(info_.channels, "channel"), info_.samplerate);
    if (info_.samplerate < lowest_rate || info_.samplerate > highest_rate)
      throw user_error("{}: has {} samples per second, but must have {} to {}; repair its header or leave it out", path,
                       thousands(info_.samplerate), thousands(lowest_rate), thousands(highest_rate));
  }

  std::int64_t frames() const override { return info_.frames; }
  std::int64_t rate() const override { return info_.samplerate; }
  std::int64_t channels() const override { return info_.channels; }
  bool states_length() const override { return states_length_; }

  std::int64_t read(float* mono, std::int64_t count) override {
    const std::int64_t wanted = std::min<std::int64_t>(count, info_.frames - done_);
    if (wanted <= 0) return 0;
    frames_.resize(static_cast<std::size_t>(wanted * channels()));
    const std::int64_t got = sf_readf_float(file_.get(), frames_.data(), wanted);
    input_.check();
    if (got != wanted || sf_error(file_.get()) != SF_ERR_NO_ERROR)
      throw user_error("{}: ends or is damaged after {} of its {} samples; copy or download it again", path_,
                       thousands(done_ + got), thousands(info_.frames));
    done_ += got;
    for (std::int64_t f = 0; f < got; ++f) {
      float sum = 0;
      for (std::int64_t c = 0; c < channels(); ++c) sum += frames_[static_cast<std::size_t>(f * channels() + c)];
      mono[f] = sum / static_cast<float>(channels());
      if (!std::isfinite(mono[f]))
        throw user_error("{}: sample {} is not a finite number; repair the file or leave it out", path_,
                         thousands(done_ - got + f));
    }
    return got;
  }

 private:
  UserError no_sound() const {
    const std::string other = other_sound_format(input_.blob());
    if (other.empty() && !named_like_other_sound(path_))
      return user_error("{}: cannot be read as sound ({}); use a WAV, FLAC, Ogg, AIFF or MP3 file", path_,
                        input_.problem());
    return user_error("{}: {} is not read here; convert it first: {}", path_,
                      other.empty() ? "this kind of sound" : other, conversion_to_flac(path_));
  }

  // The length of an MP3 file that does not state it: of all that can be decoded. That must be about all frames, since
  // the decoder ends at what it does not understand.
  void count_frames() {
    constexpr std::int64_t most_missing = 4 * 1152;  // samples: the first frames and the decoder's delay
    BlobWindow window(input_.blob());
    const std::int64_t stated = samples_of_mpeg_frames(window, after_tags(window));
    std::int64_t sum = 0;
    frames_.resize(static_cast<std::size_t>(std::int64_t{1} << 14) * static_cast<std::size_t>(info_.channels));
    for (sf_count_t got; (got = sf_readf_float(file_.get(), frames_.data(), 1 << 14)) > 0;) sum += got;
    if (sf_error(file_.get()) != SF_ERR_NO_ERROR || sum + most_missing < stated)
      throw user_error("{}: ends or is damaged after {} of about {} samples; copy or download it again", path_,
                       thousands(sum), thousands(std::max(sum, stated)));
    file_.reset();
    file_ = input_.open(info_);
    input_.check();
    if (file_ == nullptr) throw user_error("{}: cannot be read as sound again ({})", path_, input_.problem());
    info_.frames = sum;
  }

  std::string path_;
  Input input_;
  SF_INFO info_ = {};
  OpenSound file_;
  std::int64_t done_ = 0;
  bool states_length_ = true;
  std::vector<float> frames_;
};

class SoxResampler final : public Resampler {
 public:
  SoxResampler(std::int64_t from, std::int64_t to) : ratio_(static_cast<double>(to) / static_cast<double>(from)) {
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_VHQ, 0);
    soxr_error_t error = nullptr;
    soxr_ = soxr_create(static_cast<double>(from), static_cast<double>(to), 1, &error, nullptr, &quality, nullptr);
    if (soxr_ == nullptr) throw user_error("{} samples per second cannot be resampled to {}: {}", from, to, error);
  }
  ~SoxResampler() override { soxr_delete(soxr_); }
  SoxResampler(const SoxResampler&) = delete;
  SoxResampler& operator=(const SoxResampler&) = delete;

  void process(const float* in, std::int64_t count, std::vector<float>& out) override {
    run(in, static_cast<std::size_t>(count), out);
  }
  void finish(std::vector<float>& out) override { run(nullptr, 0, out); }

 private:
  // A null input ends the stream and drains the filter.
  void run(const float* in, std::size_t count, std::vector<float>& out) {
    out.clear();
    for (;;) {
      const std::size_t before = out.size();
      const std::size_t room = static_cast<std::size_t>(static_cast<double>(count) * ratio_) + 4096;
      out.resize(before + room);
      std::size_t used = 0, made = 0;
      const soxr_error_t error = soxr_process(soxr_, in, count, &used, out.data() + before, room, &made);
      LONGSTRIDE_CHECK(error == nullptr, "soxr: {}", error);
      out.resize(before + made);
      if (in != nullptr) in += used;
      count -= used;
      if (made < room && count == 0) return;
    }
  }

  double ratio_;
  soxr_t soxr_ = nullptr;
};

}  // namespace

bool begins_like_sound(const std::string& path) {
  Input input(path);
  SF_INFO info = {};
  const OpenSound file = input.open(info);
  input.check();
  return file != nullptr;
}

std::unique_ptr<AudioFile> open_audio(const std::string& path) { return std::make_unique<SoundFile>(path); }

std::unique_ptr<Resampler> make_resampler(std::int64_t from, std::int64_t to) {
  return std::make_unique<SoxResampler>(from, to);
}

}  // namespace longstride
