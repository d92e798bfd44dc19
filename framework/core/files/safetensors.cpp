#include "framework/core/files/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "framework/core/errors.h"
#include "framework/core/files/first_bytes.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header = std::uint64_t{16}
                                     << 20;  // a hundred thousand tensors; parsing takes 25 times this
constexpr std::uint64_t data_alignment = 64;
constexpr std::pair<const char*, Dtype> dtype_names[] = {
    {"F64", Dtype::f64}, {"F32", Dtype::f32}, {"BF16", Dtype::bf16}, {"F16", Dtype::f16},
    {"I64", Dtype::i64}, {"I32", Dtype::i32}, {"U16", Dtype::u16},   {"U8", Dtype::u8}};

std::string name_in_file(Dtype dtype) {
  for (const auto& [name, value] : dtype_names)
    if (value == dtype) return name;
  return "?";
}

// Reads the names of the header, and fails where one occurs twice; the JSON library alone would keep the last. Its own
// callbacks would do, but look at all earlier names after each.
struct DistinctNames {
  bool key(const std::string& name) {
    if (depth == 1 && !names.insert(name).second)
      throw user_error("{}: not a valid safetensors file: tensor '{}' occurs twice", path, printable_beginning(name));
    return true;
  }
  bool start_object(std::size_t) { return ++depth > 0; }
  bool end_object() { return --depth >= 0; }
  bool start_array(std::size_t) { return ++depth > 0; }
  bool end_array() { return --depth >= 0; }
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const std::string&) { return true; }
  bool string(const std::string&) { return true; }
  bool binary(const json::binary_t&) { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

  const std::string& path;
  std::set<std::string> names = {};
  int depth = 0;
};

json parse_header(const std::string& text, const std::string& path) {
  DistinctNames distinct{path};
  try {
    json::sax_parse(text, &distinct);
    json header = json::parse(text);
    if (!header.is_object())
      throw user_error("{}: not a valid safetensors file: the header is not a JSON object", path);
    return header;
  } catch (const json::exception&) {
    throw user_error("{}: not a valid safetensors file: the header of {} bytes is not JSON", path, text.size());
  }
}

// One tensor's description; `fail` makes the exception.
template <class Fail>
TensorEntry parse_entry(const std::string& name, const json& description, std::uint64_t data_bytes, const Fail& fail) {
  TensorEntry entry;
  entry.name = name;
  if (!description.is_object() || description.size() != 3 || !description.contains("dtype") ||
      !description.contains("shape") || !description.contains("data_offsets"))
    throw fail("must have exactly dtype, shape and data_offsets");
  const json& dtype = description["dtype"];
  const auto* known = std::find_if(std::begin(dtype_names), std::end(dtype_names),
                                   [&](const auto& pair) { return dtype.is_string() && dtype == pair.first; });
  if (known == std::end(dtype_names))
    throw fail(fmt::format("has dtype {}, but must have F64, F32, BF16, F16, I64, I32, U16 or U8",
                           dtype.is_string() ? printable_beginning(dtype.get<std::string>()) : "(not text)"));
  entry.dtype = known->second;

  const json& shape = description["shape"];
  if (!shape.is_array() || shape.size() > Shape::max_rank)
    throw fail(fmt::format("must have a shape of at most {} dimensions", Shape::max_rank));
  std::uint64_t bytes = bytes_of(entry.dtype);
  for (const json& size : shape) {
    if (!size.is_number_unsigned()) throw fail("has a shape that is not a list of sizes");
    const auto extent = size.get<std::uint64_t>();
    if (extent > INT64_MAX || (extent > 0 && bytes > data_bytes / extent))
      throw fail("has a shape larger than the file");
    bytes *= extent;
    entry.shape.size[entry.shape.rank++] = static_cast<std::int64_t>(extent);
  }
  if (shape.empty()) entry.shape = {1};

  const json& offsets = description["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    throw fail("must have two data_offsets");
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes)
    throw fail(fmt::format("claims bytes {} to {} of {}; the file is truncated or damaged", entry.begin, entry.end,
                           data_bytes));
  if (entry.end - entry.begin != bytes)
    throw fail(fmt::format("has {} bytes, but its shape and dtype need {}", entry.end - entry.begin, bytes));
  return entry;
}

Metadata parse_metadata(const json& object, const std::string& path) {
  Metadata metadata;
  const bool texts = object.is_object() &&
                     std::all_of(object.begin(), object.end(), [](const json& value) { return value.is_string(); });
  if (!texts) throw user_error("{}: not a valid safetensors file: __metadata__ must map names to text", path);
  for (const auto& [key, value] : object.items()) metadata[key] = value.get<std::string>();
  return metadata;
}

std::uint64_t little_endian(const std::uint8_t (&bytes)[8]) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> entries,
                                     const Metadata& metadata)
    : file_(path), entries_(std::move(entries)) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (TensorEntry& entry : entries_) {
    LONGSTRIDE_CHECK(!header.contains(entry.name), "tensor '{}' is declared twice", entry.name);
    entry.begin = at;
    entry.end = at += static_cast<std::uint64_t>(entry.shape.count()) * bytes_of(entry.dtype);
    json& description = header[entry.name];
    description["dtype"] = name_in_file(entry.dtype);
    description["shape"] = std::vector<std::int64_t>(entry.shape.size, entry.shape.size + entry.shape.rank);
    description["data_offsets"] = {entry.begin, entry.end};
  }
  std::string text = header.dump();
  text.append((data_alignment - (8 + text.size()) % data_alignment) % data_alignment, ' ');
  std::uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(text.size() >> (8 * i));
  append(length, sizeof(length));
  append(text.data(), text.size());
}

void SafetensorsWriter::append(const void* bytes, std::size_t count) {
  sha_.update(bytes, count);
  file_.write(bytes, count);
  digest_.bytes += count;
}

void SafetensorsWriter::write(const Tensor& tensor) {
  LONGSTRIDE_CHECK(next_ < entries_.size(), "writing tensor {} of {}", next_ + 1, entries_.size());
  const TensorEntry& entry = entries_[next_++];
  LONGSTRIDE_CHECK(tensor.contiguous() && tensor.dtype() == entry.dtype && tensor.shape() == entry.shape,
                   "'{}' is {} {} but was declared {} {}", entry.name, kernels::name_of(tensor.dtype()),
                   tensor.shape().text(), kernels::name_of(entry.dtype), entry.shape.text());
  // In pieces, so that the checksum reads each piece from the cache.
  constexpr std::size_t piece = std::size_t{1} << 18;
  const auto* bytes = tensor.as<char>();
  for (std::size_t at = 0; at < tensor.bytes(); at += piece) append(bytes + at, std::min(piece, tensor.bytes() - at));
}

FileDigest SafetensorsWriter::finish() {
  LONGSTRIDE_CHECK(next_ == entries_.size(), "only {} of {} tensors have been written", next_, entries_.size());
  file_.commit();
  digest_.sha256 = sha_.hex();
  return digest_;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  refuse_pointer(file_);
  if (file_.size() < 8)
    throw user_error("{}: not a valid safetensors file: it holds {} bytes, fewer than the 8 of a header length", path,
                     file_.size());
  std::uint8_t length_bytes[8];
  file_.read(0, length_bytes, 8);
  const std::uint64_t length = little_endian(length_bytes);
  if (length > max_header || length > file_.size() - 8)
    throw user_error("{}: not a valid safetensors file: the header claims {} bytes, but the file holds {}", path,
                     length, file_.size());
  std::string text(length, '\0');
  file_.read(8, text.data(), length);
  data_begin_ = 8 + length;
  const std::uint64_t data_bytes = file_.size() - data_begin_;

  const json header = parse_header(text, path);
  for (const auto& [name, description] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(description, path);
      continue;
    }
    const auto fail = [&, shown = printable_beginning(name)](const std::string& what) {
      return user_error("{}: not a valid safetensors file: tensor '{}' {}", path, shown, what);
    };
    entries_.push_back(parse_entry(name, description, data_bytes, fail));
  }
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const TensorEntry& entry : entries_) {
    if (entry.begin != at)
      throw user_error(
          "{}: not a valid safetensors file: tensor '{}' starts at byte {} of the data, but the one before it ends at "
          "{}",
          path, printable_beginning(entry.name), entry.begin, at);
    at = entry.end;
    index_.emplace(entry.name, index_.size());
  }
  if (at != data_bytes)
    throw user_error("{}: not a valid safetensors file: {} bytes of data belong to no tensor", path, data_bytes - at);
}

const TensorEntry* SafetensorsReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void SafetensorsReader::read(const std::string& name, const Tensor& out) const {
  LONGSTRIDE_CHECK(out.contiguous(), "cannot read '{}' into a strided view", name);
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw user_error("{}: holds no tensor '{}'", path(), name);
  if (entry->dtype != out.dtype() || !(entry->shape == out.shape()))
    throw user_error("{}: tensor '{}' is {} {}, but {} {} is needed", path(), name, name_in_file(entry->dtype),
                     entry->shape.text(), name_in_file(out.dtype()), out.shape().text());
  file_.read(data_begin_ + entry->begin, out.data(), entry->end - entry->begin);
}

}  // namespace longstride
