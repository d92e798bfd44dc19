// A TensorBoard event file: TFRecords (length, masked CRC-32C of the length, data, masked CRC-32C of the data), each
// one Event protocol buffer. Written by hand, because so few kinds of field do not justify a library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/core/files/append_file.h"

namespace longstride {

std::uint32_t crc32c(const void* bytes, std::size_t count);  // Castagnoli

// A text, picture or sound as TensorBoard shows it.
struct Media {
  enum class Form : std::uint8_t { text, png, wav };
  std::string tag, content;  // content: of the file
  Form form = Form::text;
  std::int64_t rows = 0, columns = 0, channels = 0;  // a picture's
  std::int64_t rate = 0, frames = 0;                 // a sound's: samples per second, samples
};

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

class EventFile {
 public:
  // Opens a new RUN/events.out.tfevents.<seconds>.<host>.<pid>. TensorBoard then ignores what older files in the
  // directory say about `first_step` and later steps.
  EventFile(const std::string& directory, std::int64_t first_step);

  void write(std::int64_t step, const Scalars& scalars);
  void write_media(std::int64_t step, const Media& media);
  void flush() { file_.flush(); }

 private:
  void append(std::string_view event);

  AppendFile file_;
};

}  // namespace longstride
