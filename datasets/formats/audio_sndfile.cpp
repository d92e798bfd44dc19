#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "datasets/formats/audio.h"
#include "datasets/formats/byte_input.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t most_channels = 256;

// libsndfile reads a truncated file as if it were whole. But the formats state their length: a RIFF header counts the
// bytes, and the last page of an Ogg stream is marked.
void check_complete(const Blob& blob) {
  const auto cut_short = [&](const std::string& why) {
    return user_error("{}: is cut short ({}); copy or download it again", blob.name(), why);
  };
  char head[12] = {};
  blob.read(0, head, static_cast<std::size_t>(std::min<std::uint64_t>(sizeof head, blob.size())));
  const std::string_view start(head, sizeof head);
  if (start.starts_with("RIFF") && start.substr(8) == "WAVE") {
    std::uint32_t claimed = 0;
    for (int i = 3; i >= 0; --i) claimed = claimed << 8 | static_cast<unsigned char>(head[4 + i]);
    if (claimed != 0xFFFFFFFF && std::uint64_t{claimed} + 8 > blob.size())  // a streaming recorder cannot know it
      throw cut_short(fmt::format("its header counts {} bytes, but it has {}", thousands(std::int64_t{claimed} + 8),
                                  thousands(static_cast<std::int64_t>(blob.size()))));
  }
  if (start.starts_with("OggS")) {
    std::string tail(static_cast<std::size_t>(std::min<std::uint64_t>(blob.size(), 1 << 17)), '\0');
    blob.read(blob.size() - tail.size(), tail.data(), tail.size());
    const std::size_t page = tail.rfind("OggS");
    constexpr char last_page = 4;
    if (page == std::string::npos || tail.size() - page < 27 || (tail[page + 5] & last_page) == 0)
      throw cut_short("its last page is missing");
  }
}

class SoundFile final : public AudioFile {
 public:
  explicit SoundFile(const std::string& path) : path_(path) {
    const FileBlob blob(path);
    check_complete(blob);
    file_ = sf_open(path.c_str(), SFM_READ, &info_);
    if (file_ == nullptr)
      throw user_error("{}: cannot be read as sound ({}); use a WAV, FLAC, OGG or AIFF file", path, problem());
    if (info_.frames <= 0 || info_.samplerate <= 0 || info_.channels <= 0 || info_.channels > most_channels) {
      sf_close(file_);
      throw user_error("{}: has {} samples of {} channel(s) at {} per second, which is not sound; leave it out", path,
                       static_cast<std::int64_t>(info_.frames), info_.channels, info_.samplerate);
    }
  }
  ~SoundFile() override { sf_close(file_); }
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  std::int64_t frames() const override { return info_.frames; }
  std::int64_t rate() const override { return info_.samplerate; }
  std::int64_t channels() const override { return info_.channels; }

  std::int64_t read(float* mono, std::int64_t count) override {
    const std::int64_t wanted = std::min<std::int64_t>(count, info_.frames - done_);
    if (wanted <= 0) return 0;
    frames_.resize(static_cast<std::size_t>(wanted * channels()));
    const std::int64_t got = sf_readf_float(file_, frames_.data(), wanted);
    if (got != wanted || sf_error(file_) != SF_ERR_NO_ERROR)
      throw user_error("{}: ends or is damaged after {} of its {} samples; copy or download it again", path_,
                       thousands(done_ + got), thousands(info_.frames));
    done_ += got;
    for (std::int64_t f = 0; f < got; ++f) {
      float sum = 0;
      for (std::int64_t c = 0; c < channels(); ++c) sum += frames_[static_cast<std::size_t>(f * channels() + c)];
      mono[f] = sum / static_cast<float>(channels());
    }
    return got;
  }

 private:
  // Some of libsndfile's reasons span several lines.
  std::string problem() const {
    std::string text = sf_strerror(nullptr);
    text = text.substr(0, text.find('\n'));
    while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
    return text;
  }

  std::string path_;
  SF_INFO info_ = {};
  SNDFILE* file_ = nullptr;
  std::int64_t done_ = 0;
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

std::unique_ptr<AudioFile> open_audio(const std::string& path) { return std::make_unique<SoundFile>(path); }

std::unique_ptr<Resampler> make_resampler(std::int64_t from, std::int64_t to) {
  return std::make_unique<SoxResampler>(from, to);
}

}  // namespace longstride
