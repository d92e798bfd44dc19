#include "datasets/formats/sound/ogg_pages.h"

#include <array>
#include <optional>

#include "datasets/formats/sound/second_recording.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::string_view capture_pattern = "OggS";
// A page: the pattern, a version (0), flags, 8 bytes of position, 4 each of serial number, sequence number and
// checksum, the number of segments, their lengths, and the segments.
constexpr std::size_t version_at = 4, flags_at = 5, serial_at = 14, sequence_at = 18, checksum_at = 22,
                      segments_at = 26, head_size = 27;
constexpr unsigned first_page = 2, last_page = 4;

using ChecksumTable = std::array<std::uint32_t, 256>;

constexpr ChecksumTable make_table() {
  ChecksumTable table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i << 24;
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ ((value >> 31) * 0x04c11db7U);
    table[i] = value;
  }
  return table;
}

// The checksum of a page, with zeros in place of its own.
std::uint32_t checksum_of(std::string_view page) {
  static constexpr ChecksumTable table = make_table();
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < page.size(); ++i) {
    const bool own = i >= checksum_at && i < segments_at;
    sum = sum << 8 ^ table[(sum >> 24) ^ (own ? 0U : static_cast<unsigned char>(page[i]))];
  }
  return sum;
}

class PageWalk {
 public:
  PageWalk(BlobWindow& file, std::uint64_t start) : file_(file), at_(start) {}

  void run() {
    for (bool last = false; !last;) last = check_page();
    const std::uint64_t next = file_.find(capture_pattern, at_);
    if (next == file_.size()) return;
    if (begins_a_stream(file_.at(next, head_size))) throw several_recordings(file_.blob(), next);
    throw damaged(next, "it follows the page that is marked as the last");
  }

 private:
  // Checks a page and moves to the next one. Returns true if the page is the last one.
  bool check_page() {
    const std::string_view page = whole_page();
    if (number_of(page.substr(checksum_at, 4), false) != checksum_of(page)) throw damaged(at_, "its checksum differs");
    const std::uint64_t serial = number_of(page.substr(serial_at, 4), false);
    const auto sequence = static_cast<std::uint32_t>(number_of(page.substr(sequence_at, 4), false));
    if (begins_a_stream(page) == serial_.has_value()) {
      if (!serial_.has_value()) throw damaged(at_, "it is not marked as the first");
      if (pages_ > 1) throw several_recordings(file_.blob(), at_);
    }
    if (serial != serial_.value_or(serial))
      throw user_error(
          "{}: holds other streams next to its first, such as video; extract the sound to a file of its own",
          file_.blob().name());
    if (pages_ > 0 && sequence != sequence_ + 1)
      throw damaged(at_, fmt::format("it is page {} and follows page {}", thousands(sequence), thousands(sequence_)));
    serial_ = serial, sequence_ = sequence;
    ++pages_;
    at_ += page.size();
    return (flags_of(page) & last_page) != 0;
  }

  std::string_view whole_page() {
    std::size_t size = head_size;
    std::string_view page = file_.at(at_, size);
    if (page.size() < size) throw cut_short();
    if (!page.starts_with(capture_pattern) || page[version_at] != 0)
      throw damaged(at_, "it does not begin as pages do");
    const std::size_t segments = static_cast<unsigned char>(page[segments_at]);
    size += segments;
    page = file_.at(at_, size);
    if (page.size() < size) throw cut_short();
    for (const char length : page.substr(head_size)) size += static_cast<unsigned char>(length);
    page = file_.at(at_, size);
    if (page.size() < size) throw cut_short();
    return page;
  }

  static unsigned flags_of(std::string_view page) { return static_cast<unsigned char>(page[flags_at]); }
  static bool begins_a_stream(std::string_view page) {
    return page.size() >= head_size && (flags_of(page) & first_page) != 0;
  }

  UserError cut_short() const {
    return user_error("{}: is cut short (its last page is missing); copy or download it again", file_.blob().name());
  }
  UserError damaged(std::uint64_t at, const std::string& why) const {
    return user_error("{}: the Ogg page at byte {} is damaged ({}); copy or download the file again",
                      file_.blob().name(), thousands(static_cast<std::int64_t>(at)), why);
  }

  BlobWindow& file_;
  std::uint64_t at_;
  std::uint64_t pages_ = 0;
  std::optional<std::uint64_t> serial_;
  std::uint32_t sequence_ = 0;
};

}  // namespace

void check_ogg_pages(BlobWindow& file, std::uint64_t start) { PageWalk(file, start).run(); }

}  // namespace longstride
