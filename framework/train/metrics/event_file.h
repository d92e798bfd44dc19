// A TensorBoard event file: TFRecords (length, masked CRC-32C of the length, data, masked CRC-32C of the data), each
// one Event protocol buffer. Written by hand, because four kinds of field do not justify a library.
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

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

class EventFile {
 public:
  // Opens a new RUN/events.out.tfevents.<seconds>.<host>.<pid>. TensorBoard then ignores what older files in the
  // directory say about `first_step` and later steps.
  EventFile(const std::string& directory, std::int64_t first_step);

  void write(std::int64_t step, const Scalars& scalars);
  void flush() { file_.flush(); }

 private:
  void append(std::string_view event);

  AppendFile file_;
};

}  // namespace longstride
