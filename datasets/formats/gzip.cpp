#include "datasets/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "framework/core/errors.h"

namespace longstride {
namespace {

class GzipStream final : public UnsizedStream {
 public:
  explicit GzipStream(const Blob& blob) : blob_(blob), buffer_(std::size_t{1} << 16) {
    constexpr int largest_window = 15, gzip_only = 16;
    LONGSTRIDE_CHECK(inflateInit2(&state_, largest_window + gzip_only) == Z_OK, "zlib does not start");
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(void* out, std::size_t most) override {
    auto* next = static_cast<std::uint8_t*>(out);
    std::size_t left = most;
    while (left > 0 && !ended_) {
      if (state_.avail_in == 0) refill();
      const auto room = static_cast<uInt>(std::min<std::size_t>(left, 1 << 30));
      state_.next_out = next;
      state_.avail_out = room;
      const int result = inflate(&state_, Z_NO_FLUSH);
      const std::size_t got = room - state_.avail_out;
      next += got, left -= got;
      if (result == Z_STREAM_END)
        start_member();
      else if (result == Z_BUF_ERROR && at_ == blob_.size())
        throw damaged("it is cut short");
      else if (result != Z_OK && result != Z_BUF_ERROR)
        throw damaged(state_.msg == nullptr ? "its content is not valid" : state_.msg);
    }
    return most - left;
  }

 private:
  DamagedFile damaged(const char* why) const {
    return DamagedFile(user_error("{}: is a damaged gzip file ({}); copy or download it again", blob_.name(), why));
  }

  void refill() {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), blob_.size() - at_));
    blob_.read(at_, buffer_.data(), count);
    at_ += count;
    state_.next_in = buffer_.data();
    state_.avail_in = static_cast<uInt>(count);
  }

  // After a member comes the next one, or padding, or the end.
  void start_member() {
    for (;;) {
      if (state_.avail_in == 0) refill();
      ended_ = state_.avail_in == 0;
      if (ended_ || *state_.next_in != 0) break;
      ++state_.next_in, --state_.avail_in;
    }
    if (ended_) return;
    constexpr std::uint8_t first_of_member = 0x1f;
    if (*state_.next_in != first_of_member)
      throw trailing_bytes(blob_.name(), blob_.size() - at_ + state_.avail_in, "gzip");
    inflateReset(&state_);
  }

  const Blob& blob_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t at_ = 0;
  z_stream state_ = {};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<UnsizedStream> open_gzip(const Blob& blob) { return std::make_unique<GzipStream>(blob); }

}  // namespace longstride
