#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "datasets/formats/pictures/exif.h"
#include "datasets/formats/pictures/webp.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

UserError bad_webp(const std::string& name, const char* why) {
  return user_error("{}: is a damaged WebP file ({}); replace or remove it", name, why);
}

int orientation_of(WebPDemuxer* file) {
  WebPChunkIterator chunk = {};
  const bool found = WebPDemuxGetChunk(file, "EXIF", 1, &chunk) != 0;
  const int orientation = found ? exif_orientation(chunk.chunk.bytes, chunk.chunk.size) : 1;
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Picture read_webp(const std::uint8_t* bytes, std::size_t count, const std::string& name, std::uint64_t most) {
  const WebPData data = {bytes, count};
  // The parts of the file, which must be whole. The decoder alone would not notice a picture without its end.
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> file(WebPDemux(&data), WebPDemuxDelete);
  if (file == nullptr) throw bad_webp(name, "it is cut short, or its parts do not fit");
  if ((WebPDemuxGetI(file.get(), WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG) != 0)
    throw user_error("{}: is animated; save the picture that is wanted as a file of its own", name);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw InternalError("libwebp is not the version that this was built with");
  if (WebPGetFeatures(bytes, count, &config.input) != VP8_STATUS_OK) throw bad_webp(name, "its header is not valid");
  const auto width = static_cast<std::int64_t>(config.input.width), height = std::int64_t{config.input.height};
  if (static_cast<std::uint64_t>(width * height) > most)
    throw user_error("{}: has more than {} pixels; scale it down first", name, most);
  Picture picture = {height, width, config.input.has_alpha != 0 ? 4 : 3, {}, orientation_of(file.get())};
  picture.pixels.resize(static_cast<std::size_t>(height * width * picture.channels));
  config.output.colorspace = picture.channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {picture.pixels.data(), static_cast<int>(width * picture.channels), picture.pixels.size()};
  const VP8StatusCode status = WebPDecode(bytes, count, &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_UNSUPPORTED_FEATURE || status == VP8_STATUS_OUT_OF_MEMORY)
    throw user_error("{}: is of a kind of WebP that cannot be read here; convert it to PNG first", name);
  if (status != VP8_STATUS_OK) throw bad_webp(name, "its content is not valid");
  return picture;
}

}  // namespace longstride
