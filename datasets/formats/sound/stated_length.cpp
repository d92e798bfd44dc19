#include "datasets/formats/sound/stated_length.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "datasets/formats/sound/blob_window.h"
#include "datasets/formats/sound/ogg_pages.h"
#include "datasets/formats/sound/second_recording.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using namespace std::string_view_literals;

// A file of chunks, each with a name and its size: after `head` bytes, or from the next multiple of `align` on.
struct Chunks {
  std::size_t head, name, size;  // bytes of each
  bool big_endian, counts_itself;
  std::size_t align;
  std::string_view data;  // the name of the chunk with the samples, or how it begins
};
constexpr Chunks riff = {12, 4, 4, false, false, 2, "data"}, rifx = {12, 4, 4, true, false, 2, "data"},
                 aiff = {12, 4, 4, true, false, 2, "SSND"}, w64 = {40, 16, 8, false, true, 8, "data"},
                 caf = {8, 4, 8, true, false, 1, "data"};

class StatedLength {
 public:
  StatedLength(BlobWindow& file, std::uint64_t start) : file_(file), start_(start), left_(file.size() - start) {}

  SoundLength check() {
    check_by_name();
    return length_;
  }

 private:
  void check_by_name() {
    const std::string head(file_.at(start_, 40));
    const std::string_view name = std::string_view(head).substr(0, 4),
                           kind = head.size() < 12 ? ""sv : std::string_view(head).substr(8, 4);
    if (name == "RIFF" && kind == "WAVE") return chunked(riff, number(4, 4, false));
    if (name == "RIFX" && kind == "WAVE") return chunked(rifx, number(4, 4, true));
    if (name == "FORM" && (kind == "AIFF" || kind == "AIFC")) return chunked(aiff, number(4, 4, true));
    if (name == "RF64" && kind == "WAVE") return rf64();
    if (name == "riff" && head.size() == 40 && head.substr(24, 4) == "wave") return wave64();
    if (name == "caff") return check_data(caf);
    if (name == ".snd" || name == "dns.") return sun_audio(name == ".snd");
    if (name == "NIST") return nist();
    if (head.starts_with("Creative Voice File\x1a")) return voice();
    if (name == "OggS") check_ogg_pages(file_, start_);
  }

  static constexpr std::uint64_t unknown = 0xFFFFFFFF;
  static constexpr std::uint64_t long_unknown = ~std::uint64_t{0};

  // True for a size that a program writes to a pipe, where it cannot know it, with or without the header's own.
  static bool is_placeholder(std::uint64_t size) {
    constexpr std::uint64_t most_header = 128;
    for (const std::uint64_t written : {std::uint64_t{0x7FFFF000}, std::uint64_t{0x7FFFFF00}, std::uint64_t{0x80000000},
                                        std::uint64_t{unknown}, long_unknown})
      if (size <= written && written - size < most_header) return true;
    return false;
  }

  // Null if the file ends before it.
  std::optional<std::uint64_t> number(std::uint64_t offset, std::size_t size, bool big_endian) {
    const std::string_view bytes = file_.at(start_ + offset, size);
    if (bytes.size() < size) return std::nullopt;
    return number_of(bytes, big_endian);
  }

  void expect(std::uint64_t bytes) {
    if (bytes > left_)
      throw user_error("{}: is cut short (its header counts {} bytes, but it has {}); copy or download it again",
                       file_.blob().name(), thousands(static_cast<std::int64_t>(bytes)),
                       thousands(static_cast<std::int64_t>(left_)));
  }
  // `size` bytes from `offset` on, unless they are too many for any file.
  void expect(std::uint64_t offset, std::uint64_t size) {
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    expect(std::min(offset, most) + std::min(size, most));
  }

  // size: what the header counts, from its 8th byte on. Many programs write a wrong one, so it counts only if the
  // chunk of the samples, which has a size of its own, is missing.
  void chunked(const Chunks& layout, std::optional<std::uint64_t> size) {
    if (size.has_value() && !is_placeholder(*size) && !find_chunk(layout, layout.data).has_value()) expect(8, *size);
    check_data(layout);
  }

  // Where the first chunk of that name begins, with its header; its size. Null if there is none.
  struct Chunk {
    std::uint64_t at, size;
  };
  std::optional<Chunk> find_chunk(const Chunks& layout, std::string_view wanted) {
    const std::size_t header = layout.name + layout.size;
    for (std::uint64_t at = layout.head; at < left_;) {
      const std::string_view chunk = file_.at(start_ + at, header);
      if (chunk.size() < header) return std::nullopt;
      std::uint64_t size = number_of(chunk.substr(layout.name), layout.big_endian);
      if (layout.counts_itself && size < header) return std::nullopt;
      if (layout.counts_itself) size -= header;
      if (chunk.starts_with(wanted)) return Chunk{at + header, size};
      if (size > left_) return std::nullopt;
      at += header + size;
      at += (layout.align - at % layout.align) % layout.align;
    }
    return std::nullopt;
  }

  void check_data(const Chunks& layout) {
    if (const auto chunk = find_chunk(layout, layout.data); chunk.has_value()) check_samples(layout, *chunk);
  }

  void check_samples(const Chunks& layout, const Chunk& chunk) {
    if (chunk.size == 0 && &layout == &riff && holds_samples(chunk.at))
      length_.zero_at = start_ + chunk.at - layout.size;
    if (length_.zero_at > 0 || (chunk.size > left_ - chunk.at && is_placeholder(chunk.size))) length_.stated = false;
    if (!length_.stated) return;
    expect(chunk.at, chunk.size);
    check_rest(layout, chunk);
  }

  // True if the end of a RIFF file holds more than another chunk, and not more than 32 bits count.
  bool holds_samples(std::uint64_t at) {
    const std::string_view header = file_.at(start_ + at, 8);
    if (header.size() < 8 || left_ - at >= unknown) return false;
    const bool named = std::all_of(header.begin(), header.begin() + 4, [](char c) { return c >= ' ' && c <= '~'; });
    return !named || number_of(header.substr(4), false) > left_ - at - 8;
  }

  // After the samples there may be chunks, a tag, padding and a little of anything. More samples would be lost: those
  // of a recording of over 4 GiB, whose size a header of 32 bits counts from 0 again, or of a second file.
  void check_rest(const Chunks& layout, const Chunk& samples) {
    constexpr std::uint64_t little = 4096;
    const std::uint64_t end = samples.at + samples.size;
    bool known = false;
    for (const std::uint64_t at : {end, end + (layout.align - end % layout.align) % layout.align}) {
      const std::string_view name = file_.at(start_ + at, 4);
      for (const std::string_view whole : {"RIFF"sv, "RIFX"sv, "RF64"sv, "FORM"sv, "riff"sv, "caff"sv})
        if (name == whole) throw several_recordings(file_.blob(), start_ + at);
      known = known || name.starts_with("ID3") || name.starts_with("TAG") ||
              std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
    }
    const bool letters = layout.name == 4;  // rather than a binary identifier
    if (known || !letters || end + little >= left_ || is_zero_from(end)) return;
    throw user_error(
        "{}: its header counts {} bytes of samples, but {} more follow, which are no chunk; repair its header, or "
        "convert the file to FLAC",
        file_.blob().name(), thousands(static_cast<std::int64_t>(samples.size)),
        thousands(static_cast<std::int64_t>(left_ - end)));
  }

  bool is_zero_from(std::uint64_t at) {
    constexpr std::size_t piece = 1 << 16;
    for (; at < left_; at += piece)
      for (const char byte : file_.at(start_ + at, piece))
        if (byte != 0) return false;
    return true;
  }

  // A chunk ds64 has the sizes that need more than 32 bits: of the file, and of the samples.
  void rf64() {
    const auto sizes = find_chunk(riff, "ds64");
    if (!sizes.has_value()) return chunked(riff, number(4, 4, false));
    const auto whole = number(sizes->at, 8, false), samples = number(sizes->at + 8, 8, false);
    const auto data = find_chunk(riff, riff.data);
    if (!data.has_value() && whole.has_value()) expect(8, *whole);
    if (!data.has_value()) return;
    check_samples(riff, {data->at, data->size == unknown ? samples.value_or(0) : data->size});
  }

  void wave64() {
    const auto size = number(16, 8, false);
    if (size.has_value() && *size != long_unknown && !find_chunk(w64, w64.data).has_value()) expect(*size);
    check_data(w64);
  }

  void sun_audio(bool big_endian) {
    const auto offset = number(4, 4, big_endian), size = number(8, 4, big_endian);
    if (!size.has_value()) return;
    length_.stated = size != unknown;
    if (length_.stated) expect(*offset, *size);
  }

  // Lines such as "sample_count -i 24000", in a header of 1,024 bytes.
  void nist() {
    constexpr std::size_t header = 1024;
    const std::string lines(file_.at(start_, header));
    std::uint64_t bytes = 1;
    for (const std::string_view key : {"\nsample_count -i "sv, "\nchannel_count -i "sv, "\nsample_n_bytes -i "sv}) {
      const std::size_t found = lines.find(key);
      if (found == std::string::npos) return;
      std::uint32_t value = 0;
      const char* from = lines.data() + found + key.size();
      if (std::from_chars(from, lines.data() + lines.size(), value).ec != std::errc()) return;
      constexpr std::uint64_t most = std::uint64_t{1} << 30;
      bytes = std::min(bytes, most) * value;
    }
    expect(header, bytes);
  }

  // Blocks of a type, three bytes of size and the content, until one of type 0.
  void voice() {
    for (std::uint64_t at = number(20, 2, false).value_or(left_); at < left_;) {
      const std::uint64_t type = *number(at, 1, false);
      if (type == 0) return;
      const auto size = number(at + 1, 3, false);
      expect(at + 4, size.value_or(0));
      at += 4 + *size;
    }
  }

  BlobWindow& file_;
  std::uint64_t start_, left_;
  SoundLength length_;
};

}  // namespace

std::uint64_t after_tags(BlobWindow& file) {
  constexpr std::size_t header = 10, size_at = 6;
  std::uint64_t at = 0;
  for (;;) {
    const std::string_view tag = file.at(at, header);
    if (tag.size() < header || !tag.starts_with("ID3")) return std::min(at, file.size());
    std::uint64_t size = 0;
    for (const char part : tag.substr(size_at)) size = size << 7 | (static_cast<unsigned char>(part) & 0x7F);
    at += header + size;
  }
}

SoundLength check_complete(const Blob& blob) {
  BlobWindow file(blob);
  const std::uint64_t start = after_tags(file);
  const SoundLength length = StatedLength(file, start).check();
  refuse_second_recording(file, start);
  return length;
}

}  // namespace longstride
