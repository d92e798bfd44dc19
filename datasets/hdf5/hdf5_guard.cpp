#include "datasets/hdf5/hdf5_guard.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace longstride::hdf5 {
namespace {

constexpr std::uint64_t longest_structure = std::uint64_t{1} << 24;
constexpr unsigned shape_message = 0x01, type_message = 0x03, fill_message = 0x05, layout_message = 0x08,
                   filter_message = 0x0B, attribute_message = 0x0C, group_message = 0x11, continuation_message = 0x10;

// Reads bytes in order, never past the end.
class Cursor {
 public:
  Cursor(const std::uint8_t* bytes, std::size_t count) : at_(bytes), left_(count) {}
  std::size_t left() const { return left_; }
  bool failed() const { return failed_; }
  const std::uint8_t* take(std::size_t count) {
    if (count > left_) {
      failed_ = true;
      count = left_ = 0;
      return nullptr;
    }
    const std::uint8_t* taken = at_;
    at_ += count, left_ -= count;
    return taken;
  }
  std::uint64_t number(std::size_t bytes) {
    const std::uint8_t* from = take(bytes);
    std::uint64_t n = 0;
    for (std::size_t i = from == nullptr ? 0 : bytes; i-- > 0;) n = n << 8 | from[i];
    return n;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
  bool failed_ = false;
};

// A part of the file; empty if the file does not hold it.
std::vector<std::uint8_t> part(const Blob& file, std::uint64_t offset, std::uint64_t count) {
  if (count > longest_structure || offset > file.size() || count > file.size() - offset) return {};
  std::vector<std::uint8_t> out(static_cast<std::size_t>(count));
  file.read(offset, out.data(), out.size());
  return out;
}

// True if the objects of the text heap at `offset` fill it to its end, and one of them has the index `wanted` and at
// least `length` bytes. Free space is an object with index 0.
bool heap_holds(const Blob& file, std::uint64_t offset, std::uint64_t wanted, std::uint64_t length) {
  const std::vector<std::uint8_t> start = part(file, offset, 16);
  Cursor header(start.data(), start.size());
  header.take(8);
  const std::vector<std::uint8_t> bytes = part(file, offset, header.number(8));
  if (header.failed() || bytes.size() < 16) return false;
  Cursor heap(bytes.data() + 16, bytes.size() - 16);
  bool found = false;
  while (heap.left() >= 16) {
    const std::uint64_t index = heap.number(2);
    heap.take(6);  // references, reserved
    const std::uint64_t size = heap.number(8);
    if (index == 0) return found && size >= 16 && size - 16 == heap.left();
    if (size == 0 || size > heap.left() || heap.take((size + 7) / 8 * 8) == nullptr) return false;
    found = found || (index == wanted && length <= size);
  }
  return found;
}

// The type of an attribute's entries. kind: one of the constants below.
struct EntryType {
  std::uint64_t kind = 0, bytes = 0;
  std::uint64_t element_bytes = 0;  // if the length varies: bytes of one element
};
constexpr std::uint64_t whole_number = 0, floating = 1, text = 3, bit_field = 4, reference = 7, enumeration = 8,
                        variable_length = 9;
constexpr std::uint64_t heap_reference = 16, largest_number = 16;  // bytes

// Nothing if the type is inconsistent or is one that no dataset needs.
std::optional<EntryType> read_type(Cursor& type, bool nested) {
  const std::uint64_t start = type.number(1), bits = type.number(3), bytes = type.number(4);
  const std::uint64_t version = start >> 4;
  EntryType out = {start & 15, bytes, 0};
  bool good = version >= 1 && version <= 5 && bytes > 0;
  if (out.kind == whole_number || out.kind == bit_field) {
    const std::uint64_t offset = type.number(2), precision = type.number(2);
    good = good && bytes <= largest_number && precision > 0 && offset + precision <= 8 * bytes;
  } else if (out.kind == floating) {
    type.take(12);
    good = good && bytes <= largest_number;
  } else if (out.kind == enumeration && !nested) {
    const auto base = read_type(type, true);
    good = good && base && base->kind == whole_number && base->bytes == bytes;
    for (std::uint64_t member = 0; good && member < (bits & 0xFFFF); ++member) {
      std::size_t length = 1;
      while (type.number(1) != 0 && !type.failed()) ++length;
      if (version < 3) type.take((8 - length % 8) % 8);
      good = !type.failed();
    }
    if (good) type.take((bits & 0xFFFF) * bytes);
  } else if (out.kind == variable_length && !nested) {
    const auto base = read_type(type, true);
    good = good && base && bytes == heap_reference && base->bytes <= largest_number;
    if (good) out.element_bytes = base->bytes;
  } else {
    good = good && (out.kind == text || out.kind == reference);
  }
  if (!good || type.failed()) return std::nullopt;
  return out;
}

// The number of entries of this shape; nothing if the shape is invalid.
std::optional<std::uint64_t> entries_of(Cursor shape) {
  const std::uint64_t version = shape.number(1), rank = shape.number(1);
  shape.take(version == 1 ? 6 : 2);  // flags and kind
  if (version < 1 || version > 2 || rank > 32) return std::nullopt;
  std::uint64_t entries = 1;
  for (std::uint64_t side = 0; side < rank; ++side)
    if (__builtin_mul_overflow(entries, shape.number(8), &entries)) return std::nullopt;
  if (shape.failed()) return std::nullopt;
  return entries;
}

// True if the attribute's name ends in a zero within the message, its type, shape and content end there too, and its
// first text of variable length is in its heap. Only scalar attributes are read, so the first is the only one.
bool attribute_holds(const Blob& file, Cursor message) {
  const std::uint64_t version = message.number(1), flags = message.number(1);
  const std::size_t name_size = message.number(2), type_size = message.number(2), shape_size = message.number(2);
  if (version == 3) message.number(1);  // character set
  if (version < 1 || version > 3 || (version > 1 && flags != 0)) return false;
  const auto padded = [&](std::size_t size) { return version == 1 ? (size + 7) / 8 * 8 : size; };
  const std::uint8_t* name = message.take(padded(name_size));
  if (name == nullptr || name_size == 0 || name[name_size - 1] != 0) return false;
  const std::uint8_t* type_bytes = message.take(padded(type_size));
  const std::uint8_t* shape = message.take(padded(shape_size));
  if (type_bytes == nullptr || shape == nullptr) return false;
  Cursor type_cursor(type_bytes, type_size);
  const auto type = read_type(type_cursor, false);
  const auto entries = entries_of(Cursor(shape, shape_size));
  std::uint64_t bytes = 0;
  if (!type || !entries || __builtin_mul_overflow(type->bytes, *entries, &bytes) || bytes > message.left())
    return false;
  if (type->kind != variable_length || *entries == 0) return true;
  const std::uint64_t length = message.number(4), heap = message.number(8), index = message.number(4);
  return !message.failed() && (heap == 0 || heap_holds(file, heap, index, length * type->element_bytes));
}

// The names of a version 1 group: they are in a heap, each ending in a zero, and are found through a tree.
class NamesOfGroup {
 public:
  explicit NamesOfGroup(const Blob& file) : file_(file) {}

  bool hold(std::uint64_t tree, std::uint64_t heap) {
    const std::vector<std::uint8_t> start = part(file_, heap, 32);
    Cursor header(start.data(), start.size());
    header.take(8);  // name, version
    const std::uint64_t size = header.number(8), first_free = header.number(8);
    heap_ = part(file_, header.number(8), size);
    if (header.failed() || heap_.size() != size || !free_blocks_hold(first_free)) return false;
    return node_holds(tree, 0);
  }

 private:
  // Each block holds the offset of the next and its own size; 1 ends the list.
  bool free_blocks_hold(std::uint64_t at) const {
    for (std::size_t seen = 0; at != 1; ++seen) {
      if (seen > heap_.size() / 16 || at > heap_.size() || heap_.size() - at < 16) return false;
      Cursor block(heap_.data() + at, 16);
      const std::uint64_t next = block.number(8), size = block.number(8);
      if (size < 16 || size > heap_.size() - at) return false;
      at = next;
    }
    return true;
  }

  bool name_holds(std::uint64_t at) const {
    return at < heap_.size() &&
           std::find(heap_.begin() + static_cast<std::ptrdiff_t>(at), heap_.end(), 0) != heap_.end();
  }

  bool node_holds(std::uint64_t at, int depth) {
    constexpr int deepest = 16;
    constexpr std::size_t most_nodes = 1 << 16;
    if (depth > deepest || !seen_.insert(at).second || seen_.size() > most_nodes) return false;
    const std::vector<std::uint8_t> start = part(file_, at, 24);
    Cursor header(start.data(), start.size());
    header.take(4);
    const std::uint64_t kind = header.number(1), level = header.number(1), entries = header.number(2);
    if (header.failed() || kind != 0) return false;
    const std::vector<std::uint8_t> content = part(file_, at + 24, entries * 16 + 8);
    Cursor keys(content.data(), content.size());
    if (!name_holds(keys.number(8))) return false;
    for (std::uint64_t e = 0; e < entries; ++e) {
      const std::uint64_t child = keys.number(8), name = keys.number(8);
      if (keys.failed() || !name_holds(name)) return false;
      if (level > 0 ? !node_holds(child, depth + 1) : !leaf_holds(child)) return false;
    }
    return true;
  }

  bool leaf_holds(std::uint64_t at) const {
    constexpr std::uint64_t entry_bytes = 40;
    const std::vector<std::uint8_t> start = part(file_, at, 8);
    Cursor header(start.data(), start.size());
    header.take(6);
    const std::uint64_t entries = header.number(2);
    const std::vector<std::uint8_t> content = part(file_, at + 8, entries * entry_bytes);
    if (header.failed() || content.size() != entries * entry_bytes) return false;
    for (std::uint64_t e = 0; e < entries; ++e) {
      constexpr std::uint64_t link = 2;
      Cursor entry(content.data() + e * entry_bytes, entry_bytes);
      const bool named = name_holds(entry.number(8));
      entry.take(8);
      const bool is_link = entry.number(4) == link;
      entry.take(4);
      if (!named || (is_link && !name_holds(entry.number(4)))) return false;
    }
    return true;
  }

  const Blob& file_;
  std::vector<std::uint8_t> heap_;
  std::set<std::uint64_t> seen_;
};

bool group_holds(const Blob& file, Cursor message) {
  const std::uint64_t tree = message.number(8), heap = message.number(8);
  return !message.failed() && NamesOfGroup(file).hold(tree, heap);
}

// True if the fill value, for entries that were never written, ends within its message.
bool fill_holds(Cursor message) {
  const std::uint64_t version = message.number(1);
  std::uint64_t size = 0;
  if (version == 3) {
    if ((message.number(1) & 0x20) != 0) size = message.number(4);
  } else {
    message.take(2);  // when it is allocated and written
    const std::uint64_t defined = message.number(1);
    if (version == 1 || defined != 0) size = message.number(4);
    if (version == 2 && size == 0xFFFFFFFF) size = 0;  // HDF5's -1: none
  }
  return version >= 1 && version <= 3 && !message.failed() && size <= message.left();
}

// True if every filter ends within the message.
bool filters_hold(Cursor message) {
  constexpr std::uint64_t most = 32, first_with_name = 256;
  const std::uint64_t version = message.number(1), count = message.number(1);
  if (version < 1 || version > 2 || count > most) return false;
  if (version == 1) message.take(6);
  for (std::uint64_t f = 0; f < count; ++f) {
    const std::uint64_t filter = message.number(2);
    const std::size_t name = version == 1 || filter >= first_with_name ? message.number(2) : 0;
    message.take(2);  // flags
    const std::size_t values = message.number(2);
    message.take(version == 1 ? (name + 7) / 8 * 8 : name);
    message.take(4 * (version == 1 ? (values + 1) / 2 * 2 : values));
  }
  return !message.failed();
}

// True if the index of a dataset's chunks has the parameters that HDF5 always writes, the right form of entries and, if
// their number is fixed, one entry per chunk.
bool index_holds(const Blob& file, std::uint64_t address, bool fixed, bool filtered, std::uint64_t chunks) {
  constexpr std::uint8_t extensible_numbers[] = {32, 4, 16, 4, 10}, fixed_numbers[] = {10};
  const std::vector<std::uint8_t> start = part(file, address, 16);
  Cursor header(start.data(), start.size());
  header.take(5);  // name, version
  const std::uint64_t form = header.number(1), entry = header.number(1);
  if (form != (filtered ? 1 : 0) || (filtered ? entry < 8 + 1 + 4 || entry > 8 + 8 + 4 : entry != 8)) return false;
  for (const std::uint8_t expected : fixed ? std::span<const std::uint8_t>(fixed_numbers) : extensible_numbers)
    if (header.number(1) != expected) return false;
  return !header.failed() && (!fixed || header.number(8) == chunks);
}

// The number of chunks of an array with these sides; 0 if it overflows.
std::uint64_t chunks_of(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> chunk) {
  std::uint64_t chunks = 1;
  for (std::size_t s = 0; s < shape.size(); ++s)
    if (__builtin_mul_overflow(chunks, shape[s] / chunk[s] + (shape[s] % chunk[s] == 0 ? 0 : 1), &chunks)) return 0;
  return chunks;
}

// True if no side of a chunk is zero, and HDF5 can find every chunk. shape: from sides_of().
bool layout_holds(const Blob& file, Cursor message, std::span<const std::uint64_t> shape, bool filtered) {
  constexpr std::uint64_t compact = 0, chunked = 2, fixed_array = 3, extensible_array = 4, b_tree = 5;
  const std::uint64_t version = message.number(1), kind = message.number(1);
  if (version < 3 || version > 4) return false;
  if (kind == compact) return message.number(2) <= message.left() && !message.failed();
  if (kind != chunked) return true;
  std::size_t width = 4;
  if (version == 4) message.number(1);             // flags
  const std::size_t rank = message.number(1) - 1;  // the last side is an entry's
  if (version == 3)
    message.number(8);  // address
  else
    width = message.number(1);
  const bool says_most = shape.size() == 2 * rank;
  if ((shape.size() != rank && !says_most) || rank == 0 || width < 1 || width > 8) return false;
  std::vector<std::uint64_t> chunk;
  for (std::size_t s = 0; s <= rank; ++s) chunk.push_back(message.number(width));
  if (message.failed() || std::find(chunk.begin(), chunk.end(), 0) != chunk.end()) return false;
  if (version == 3) return true;
  const std::uint64_t index = message.number(1);
  if (index == b_tree) return false;  // for arrays that grow in several directions
  if (index != fixed_array && index != extensible_array) return !message.failed();
  message.take(index == fixed_array ? 1 : 5);
  const std::uint64_t address = message.number(8);
  if (message.failed()) return false;
  const std::uint64_t chunks = chunks_of(says_most ? shape.subspan(rank) : shape, chunk);
  const bool grows_less =
      says_most && !std::equal(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(rank),
                               shape.begin() + static_cast<std::ptrdiff_t>(rank), std::less_equal());
  if (grows_less) return false;
  return address == ~std::uint64_t{0} || index_holds(file, address, index == fixed_array, filtered, chunks);
}

// The sides of a dataspace, followed by the limits to which they may grow, if it has any.
std::vector<std::uint64_t> sides_of(Cursor message) {
  const std::uint64_t version = message.number(1), rank = message.number(1), flags = message.number(1);
  message.take(version == 1 ? 5 : 1);
  std::vector<std::uint64_t> sides;
  for (std::uint64_t s = 0; s < rank * ((flags & 1) != 0 ? 2 : 1) && message.left() >= 8; ++s)
    sides.push_back(message.number(8));
  return sides;
}

// The checks that need only one message.
bool message_holds(const Blob& file, unsigned type, Cursor message) {
  switch (type) {
    case shape_message:
      return entries_of(message).has_value();
    case type_message:
      return read_type(message, false).has_value();
    case fill_message:
      return fill_holds(message);
    case filter_message:
      return filters_hold(message);
    case group_message:
      return group_holds(file, message);
    case attribute_message:
      return attribute_holds(file, message);
    default:
      return true;
  }
}

}  // namespace

bool HeaderGuard::messages_hold(std::uint64_t offset, std::uint64_t size, Form form, Dataset& dataset) {
  constexpr std::uint64_t kept_elsewhere = 2;
  constexpr int most_parts = 1000;
  if (++dataset.parts > most_parts) return false;
  const std::vector<std::uint8_t> bytes = part(*file_, offset, size);
  if (bytes.size() != size || !seen_.emplace(offset, offset + size).second) return false;
  Cursor messages(bytes.data(), bytes.size());
  while (messages.left() >= form.before) {
    Cursor start(messages.take(form.before), form.before);
    const auto type = static_cast<unsigned>(start.number(form.first_version ? 2 : 1));
    const std::size_t length = start.number(2);
    const std::uint64_t flags = start.number(1);
    const std::uint8_t* content = messages.take(length);
    if (content == nullptr || (flags & kept_elsewhere) != 0) return false;
    Cursor message(content, length);
    if (!message_holds(*file_, type, message)) return false;
    if (type == shape_message) dataset.shape = sides_of(message);
    if (type == filter_message) dataset.filtered = length > 1 && content[1] > 0;
    if (type == layout_message) dataset.layout.assign(content, content + length);
    if (type != continuation_message) continue;
    std::uint64_t next = message.number(8), next_size = message.number(8);
    if (message.failed()) return false;
    if (!form.first_version) {  // between a name and a checksum
      if (next_size < 8) return false;
      next += 4, next_size -= 8;
    }
    if (!messages_hold(next, next_size, form, dataset)) return false;
  }
  return true;
}

bool HeaderGuard::header_holds(std::uint64_t offset, const std::uint8_t* block, std::size_t count) {
  Dataset dataset;
  if (!parts_hold(offset, block, count, dataset)) return false;
  if (!dataset.layout.empty() &&
      !layout_holds(*file_, Cursor(dataset.layout.data(), dataset.layout.size()), dataset.shape, dataset.filtered))
    return false;
  seen_.emplace(offset, offset + 1);  // HDF5 may forget it and read it again
  return true;
}

bool HeaderGuard::parts_hold(std::uint64_t offset, const std::uint8_t* block, std::size_t count, Dataset& dataset) {
  Cursor start(block, count);
  if (std::string_view(reinterpret_cast<const char*>(block), 4) != "OHDR") {
    const bool first = start.number(1) == 1 && start.number(1) == 0;
    start.take(6);  // number of messages, references
    return first && messages_hold(offset + 16, start.number(4), {true, 8}, dataset);
  }
  start.take(4);
  if (start.number(1) != 2) return false;
  const std::uint64_t flags = start.number(1);
  std::size_t before = 6;
  if ((flags & 0x20) != 0) before += 16;  // times
  if ((flags & 0x10) != 0) before += 4;   // when attributes are stored elsewhere
  start.take(before - 6);
  const std::size_t width = std::size_t{1} << (flags & 3);
  const std::uint64_t size = start.number(width);
  const std::size_t message = (flags & 0x04) != 0 ? 6 : 4;  // with the order of creation
  return !start.failed() && messages_hold(offset + before + width, size, {false, message}, dataset);
}

bool HeaderGuard::allows(std::uint64_t offset, const std::uint8_t* block, std::size_t count) {
  if (count < 16) return true;
  const std::string_view name(reinterpret_cast<const char*>(block), 4);
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (name != "OHDR" && std::all_of(name.begin(), name.end(), upper)) return true;  // another structure
  const auto after = seen_.upper_bound(offset);
  if (after != seen_.begin() && offset < std::prev(after)->second) return true;
  return header_holds(offset, block, count);
}

}  // namespace longstride::hdf5
