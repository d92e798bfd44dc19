#include "framework/train/metrics/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>

#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0u);
    table[byte] = value;
  }
  return table;
}();

// Rotated and shifted as TFRecord requires, because a plain checksum of data that contains checksums would be weak.
std::uint32_t masked_crc(const void* bytes, std::size_t count) {
  return std::rotr(crc32c(bytes, count), 15) + 0xa282ead8u;
}

template <class T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// Protocol buffers: a field is its number and wire type in one byte (numbers below 16), then its value.
enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_tag(std::string& out, int field, Wire wire) { out += static_cast<char>(field << 3 | static_cast<int>(wire)); }

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_integer(std::string& out, int field, std::uint64_t value) {
  put_tag(out, field, Wire::varint);
  put_varint(out, value);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log =
// 7; }
std::string event_of(std::int64_t step, int field, std::string_view content) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_tag(event, 1, Wire::fixed64);
  put_little_endian(event, std::bit_cast<std::uint64_t>(now.count()));
  put_integer(event, 2, static_cast<std::uint64_t>(step));
  put_bytes(event, field, content);
  return event;
}

// Markdown that shows the text as it is: lines of code. What is not UTF-8 is replaced.
std::string as_code(const std::string& text) {
  std::string out = "    ";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    out += length > 0 && (text[i] == '\n' || !is_control(text, i)) ? text.substr(i, length) : "\xEF\xBF\xBD";
    if (text[i] == '\n') out += "    ";
    i += std::max<std::size_t>(1, length);
  }
  return out;
}

// TensorProto { DataType dtype = 1: 7 is a string; TensorShapeProto tensor_shape = 2 { Dim dim = 2 { int64 size = 1; }
// }; bytes string_val = 8; }
std::string tensor_of(const std::string& text) {
  std::string dimension, shape, tensor;
  put_integer(dimension, 1, 1);
  put_bytes(shape, 2, dimension);
  put_integer(tensor, 1, 7);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, as_code(text));
  return tensor;
}

// SummaryMetadata { PluginData plugin_data = 1 { string plugin_name = 1; } }
std::string metadata_of_text() {
  std::string plugin, metadata;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  return metadata;
}

// Image { int32 height = 1, width = 2, colorspace = 3: the channels; bytes encoded_image_string = 4; }
std::string image_of(const Media& media) {
  std::string image;
  put_integer(image, 1, static_cast<std::uint64_t>(media.rows));
  put_integer(image, 2, static_cast<std::uint64_t>(media.columns));
  put_integer(image, 3, static_cast<std::uint64_t>(media.channels));
  put_bytes(image, 4, media.content);
  return image;
}

// Audio { float sample_rate = 1; int64 num_channels = 2, length_frames = 3; bytes encoded_audio_string = 4; string
// content_type = 5; }
std::string audio_of(const Media& media) {
  std::string audio;
  put_tag(audio, 1, Wire::fixed32);
  put_little_endian(audio, std::bit_cast<std::uint32_t>(static_cast<float>(media.rate)));
  put_integer(audio, 2, 1);
  put_integer(audio, 3, static_cast<std::uint64_t>(media.frames));
  put_bytes(audio, 4, media.content);
  put_bytes(audio, 5, "audio/wav");
  return audio;
}

std::string name_of_file(const std::string& directory) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}/events.out.tfevents.{}.{}.{}", directory,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, ::getpid());
}

}  // namespace

std::uint32_t crc32c(const void* bytes, std::size_t count) {
  const auto* in = static_cast<const std::uint8_t*>(bytes);
  std::uint32_t crc = ~0u;
  for (std::size_t i = 0; i < count; ++i) crc = crc >> 8 ^ crc_table[(crc ^ in[i]) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string& directory, std::int64_t first_step) : file_(name_of_file(directory)) {
  append(event_of(0, 3, "brain.Event:2"));
  std::string start;  // SessionLog { status = 1: START is 1 }
  put_integer(start, 1, 1);
  append(event_of(first_step, 7, start));
}

void EventFile::write(std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;  // Summary.Value { string tag = 1; float simple_value = 2; }
    put_bytes(value, 1, tag);
    put_tag(value, 2, Wire::fixed32);
    put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    put_bytes(summary, 1, value);
  }
  append(event_of(step, 5, summary));
}

// Summary.Value { string tag = 1; Image image = 4; Audio audio = 6; TensorProto tensor = 8; SummaryMetadata metadata =
// 9;
// }
void EventFile::write_media(std::int64_t step, const Media& media) {
  std::string value, summary;
  put_bytes(value, 1, media.tag);
  switch (media.form) {
    case Media::Form::text:
      put_bytes(value, 8, tensor_of(media.content));
      put_bytes(value, 9, metadata_of_text());
      break;
    case Media::Form::png:
      put_bytes(value, 4, image_of(media));
      break;
    case Media::Form::wav:
      put_bytes(value, 6, audio_of(media));
      break;
  }
  put_bytes(summary, 1, value);
  append(event_of(step, 5, summary));
}

void EventFile::append(std::string_view event) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(event.size()));
  put_little_endian(record, masked_crc(record.data(), record.size()));
  record += event;
  put_little_endian(record, masked_crc(event.data(), event.size()));
  file_.append(record);
}

}  // namespace longstride
