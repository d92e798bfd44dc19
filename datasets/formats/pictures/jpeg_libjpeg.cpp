#include <csetjmp>
#include <cstdio>
// libjpeg's headers need stdio.h before them.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstring>

#include "datasets/formats/pictures/exif.h"
#include "datasets/formats/pictures/jpeg.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr int exif_marker = JPEG_APP0 + 1;
// A progressive file may scan the whole picture for a few bytes. Real ones have about ten scans: 16 of the largest
// picture may take half a second.
constexpr std::uint64_t most_scans = 500;
constexpr std::uint64_t most_scanned_pixels = std::uint64_t{1} << 30;

// Headers of scans up to the end mark. Within a scan, 0xFF is followed by 0, or by the number of a restart.
std::uint64_t scans_of(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::uint8_t scan = 0xDA, end = 0xD9, lone = 0x01;
  std::uint64_t scans = 0;
  for (std::size_t at = 2; at + 3 < count;) {
    const auto* next = static_cast<const std::uint8_t*>(std::memchr(bytes + at, 0xFF, count - 3 - at));
    if (next == nullptr || next[1] == end) break;
    const std::uint8_t marker = next[1];
    const bool segment = marker != 0 && marker != 0xFF && marker != lone && (marker < 0xD0 || marker > 0xD8);
    scans += marker == scan ? 1 : 0;
    at = static_cast<std::size_t>(next - bytes) + (segment ? 2 + std::size_t{next[2]} * 256 + next[3] : 1);
  }
  return scans;
}

// The product of two values of 0 to 255, where 255 is one, rounded as Pillow does.
int multiplied(int a, int b) {
  const int product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

// CMYK without a colour profile, as Pillow converts it. Files store the paper that the inks leave, not the inks.
void convert_cmyk(const std::uint8_t* from, std::size_t pixels, std::uint8_t* to) {
  for (std::size_t i = 0; i < pixels; ++i)
    for (std::size_t c = 0; c < 3; ++c)
      to[3 * i + c] = static_cast<std::uint8_t>(from[4 * i + 3] - multiplied(255 - from[4 * i + c], from[4 * i + 3]));
}

// libjpeg reports an error by a function that must not return, so it jumps back to guarded().
class Decoder {
 public:
  Decoder(const std::uint8_t* bytes, std::size_t count, const std::string& name)
      : name_(name), begin_(bytes), count_(count) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { self(info).stop(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      constexpr int warning = -1;
      if (level == warning && !self(info).harmless()) self(info).stop();
    };
    info_.client_data = this;
    guarded([&] {
      jpeg_create_decompress(&info_);
      jpeg_mem_src(&info_, bytes, static_cast<unsigned long>(count));
      jpeg_save_markers(&info_, exif_marker, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Picture decode(std::uint64_t most) {
    if (pixels() > most) throw user_error("{}: has more than {} pixels; scale it down first", name_, most);
    if (const std::uint64_t scans = scans_of(begin_, count_);
        scans > most_scans || scans * pixels() > most_scanned_pixels)
      throw user_error("{}: has {} scans of {} x {} pixels, which would take long; save it with at most {}, or as PNG",
                       name_, scans, info_.image_width, info_.image_height,
                       std::min(most_scans, most_scanned_pixels / pixels()));
    const J_COLOR_SPACE colours = info_.jpeg_color_space;
    const bool grey = colours == JCS_GRAYSCALE, cmyk = colours == JCS_CMYK || colours == JCS_YCCK;
    if (!grey && !cmyk && colours != JCS_YCbCr && colours != JCS_RGB)
      throw user_error("{}: has {} channels of unknown colours; convert it to RGB first", name_, info_.num_components);
    Picture picture = {info_.image_height, info_.image_width, grey ? 1 : 3, {}, orientation()};
    picture.cmyk = cmyk;
    picture.pixels.resize(static_cast<std::size_t>(picture.rows * picture.columns * picture.channels));
    info_.out_color_space = grey ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB;
    const std::size_t row = static_cast<std::size_t>(picture.columns * picture.channels);
    std::vector<std::uint8_t> inks(cmyk ? std::size_t{info_.image_width} * 4 : 0);
    guarded([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        std::uint8_t* to = picture.pixels.data() + info_.output_scanline * row;
        JSAMPROW into = cmyk ? inks.data() : to;
        jpeg_read_scanlines(&info_, &into, 1);
        if (cmyk) convert_cmyk(inks.data(), info_.image_width, to);
      }
      jpeg_finish_decompress(&info_);
    });
    return picture;
  }

 private:
  static Decoder& self(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

  std::uint64_t pixels() const { return std::uint64_t{info_.image_width} * info_.image_height; }

  // True if the pixels are whole in spite of this warning of libjpeg's.
  bool harmless() const {
    switch (errors_.msg_code) {
      case JWRN_ADOBE_XFORM:     // an odd segment of Adobe's
      case JWRN_JFIF_MAJOR:      // a version of JFIF to come
      case JWRN_NOT_SEQUENTIAL:  // numbers that only progressive files use, which some phones leave 0
        return true;
      case JWRN_EXTRANEOUS_DATA:
        return info_.input_scan_number == 0 || is_padding(static_cast<std::size_t>(errors_.msg_parm.i[0]));
      case JWRN_JPEG_EOF:  // only the end mark is missing: where one scan has all pixels, a lost one warns of itself
        return info_.progressive_mode == FALSE && info_.arith_code == FALSE &&
               info_.comps_in_scan == info_.num_components;
      default:  // HIT_MARKER, HUFF_BAD_CODE, ARITH_BAD_CODE, MUST_RESYNC, BOGUS_PROGRESSION: pixels are lost or wrong
        return false;
    }
  }

  // True if the bytes between the end of a scan and the next marker are few, or all the same: not the rest of a scan
  // whose beginning is damaged.
  bool is_padding(std::size_t count) const {
    constexpr std::size_t few = 4;
    const std::uint8_t* end = info_.src->next_input_byte;
    if (count <= few) return true;
    if (static_cast<std::size_t>(end - begin_) < count) return false;
    return std::all_of(end - count, end, [&](std::uint8_t byte) { return byte == end[-1]; });
  }

  // Errors that say what libjpeg cannot do, though the file may be right.
  static bool is_limit(int code) {
    return code == JERR_SOF_UNSUPPORTED || code == JERR_BAD_PRECISION || code == JERR_ARITH_NOTIMPL ||
           code == JERR_NOTIMPL || code == JERR_NOT_COMPILED || code == JERR_COMPONENT_COUNT ||
           code == JERR_CONVERSION_NOTIMPL || code == JERR_FRACT_SAMPLE_NOTIMPL || code == JERR_CCIR601_NOTIMPL ||
           code == JERR_OUT_OF_MEMORY || code == JERR_IMAGE_TOO_BIG;
  }

  // `step` must not own anything: a jump out of it runs no destructors.
  template <class Step>
  void guarded(const Step& step) {
    if (setjmp(back_) == 0) return step();
    if (is_limit(errors_.msg_code))
      throw user_error("{}: is of a kind of JPEG that cannot be read here ({}); convert it to PNG first", name_, why_);
    throw user_error("{}: is a damaged JPEG file ({}); replace or remove it", name_, why_);
  }

  [[noreturn]] void stop() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), why_);
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
  const std::uint8_t* begin_;  // first byte of the file
  std::size_t count_;
  Info info_;
  jpeg_error_mgr errors_ = {};
  std::jmp_buf back_;
  char why_[JMSG_LENGTH_MAX] = {};
};

}  // namespace

Picture read_jpeg(const std::uint8_t* bytes, std::size_t count, const std::string& name, std::uint64_t most) {
  return Decoder(bytes, count, name).decode(most);
}

}  // namespace longstride
