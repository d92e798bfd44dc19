#include <csetjmp>
#include <cstdio>
// libjpeg's headers need stdio.h before them.
#include <jerror.h>
#include <jpeglib.h>

#include <cstring>

#include "datasets/formats/pictures/exif.h"
#include "datasets/formats/pictures/jpeg.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr int exif_marker = JPEG_APP0 + 1;
// A progressive file may scan the whole picture for a few bytes; real ones have about ten scans.
constexpr int most_scans = 500;

// libjpeg reports an error by a function that must not return, so it jumps back to guarded().
class Decoder {
 public:
  Decoder(const std::uint8_t* bytes, std::size_t count, const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { self(info).stop(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      constexpr int warning = -1;
      if (level == warning && !harmless(info->err->msg_code)) self(info).stop();
    };
    info_.client_data = this;
    progress_.progress_monitor = [](j_common_ptr info) {
      if (self(info).info_.input_scan_number <= most_scans) return;
      self(info).stop("it has more than 500 scans");
    };
    guarded([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, bytes, static_cast<unsigned long>(count));
      jpeg_save_markers(&info_, exif_marker, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Picture decode(std::uint64_t most) {
    if (std::uint64_t{info_.image_width} * info_.image_height > most)
      throw user_error("{}: has more than {} pixels; scale it down first", name_, most);
    const bool grey = info_.jpeg_color_space == JCS_GRAYSCALE;
    if (!grey && info_.jpeg_color_space != JCS_YCbCr && info_.jpeg_color_space != JCS_RGB)
      throw user_error("{}: has {} channels, as CMYK for printing has; convert it to RGB first", name_,
                       info_.num_components);
    Picture picture = {info_.image_height, info_.image_width, grey ? 1 : 3, {}, orientation()};
    picture.pixels.resize(static_cast<std::size_t>(picture.rows * picture.columns * picture.channels));
    info_.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    const std::size_t row = static_cast<std::size_t>(picture.columns * picture.channels);
    guarded([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW to = picture.pixels.data() + info_.output_scanline * row;
        jpeg_read_scanlines(&info_, &to, 1);
      }
      jpeg_finish_decompress(&info_);
    });
    return picture;
  }

 private:
  static Decoder& self(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

  // The pixels are whole nevertheless: bytes between two segments, and an odd segment of Adobe's.
  static bool harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  }

  // `step` must not own anything: a jump out of it runs no destructors.
  template <class Step>
  void guarded(const Step& step) {
    if (setjmp(back_) == 0)
      step();
    else
      throw user_error("{}: is a damaged or unusual JPEG file ({}); replace or remove it", name_, why_);
  }

  [[noreturn]] void stop() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), why_);
    std::longjmp(back_, 1);
  }
  [[noreturn]] void stop(const char* why) {
    std::snprintf(why_, sizeof why_, "%s", why);
    std::longjmp(back_, 1);
  }

  int orientation() const {
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next)
      if (marker->data_length > 6 && std::memcmp(marker->data, "Exif\0\0", 6) == 0)
        return exif_orientation(marker->data, marker->data_length);
    return 1;
  }

  struct Info : jpeg_decompress_struct {
    Info() : jpeg_decompress_struct{} {}
    ~Info() { jpeg_destroy_decompress(this); }
    Info(const Info&) = delete;
    Info& operator=(const Info&) = delete;
  };

  const std::string& name_;
  Info info_;
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf back_;
  char why_[JMSG_LENGTH_MAX] = {};
};

}  // namespace

Picture read_jpeg(const std::uint8_t* bytes, std::size_t count, const std::string& name, std::uint64_t most) {
  return Decoder(bytes, count, name).decode(most);
}

}  // namespace longstride
