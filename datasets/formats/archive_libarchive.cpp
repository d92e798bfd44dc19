#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <vector>

#include "datasets/formats/archive.h"
#include "datasets/formats/gzip.h"
#include "datasets/formats/zip/zip_directory.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// Where the content of a file begins that zstd has compressed; 0 of other files. libarchive does not recognise a file
// that begins with frames without content.
std::uint64_t content_begin(const Blob& blob) {
  constexpr std::uint64_t header = 8;  // magic and size
  std::uint64_t at = 0;
  while (blob.size() - at >= header) {
    char bytes[header];
    blob.read(at, bytes, header);
    const std::string_view head(bytes, header);
    if (!begins_skippable_frame(head)) break;
    const std::uint64_t size = number_of(head.substr(4), false);
    if (size > blob.size() - at - header) break;  // cut short
    at += header + size;
  }
  return at;
}

// A file that may be right, but is beyond what libarchive reads.
UserError beyond_limits(const std::string& name, const std::string& reason) {
  const bool window = reason.find("too much memory") != std::string::npos;
  return user_error("{}: cannot be read here, which is no sign of damage ({}); unpack it first{}", name,
                    window ? "its window exceeds the 128 MiB that are read" : reason,
                    window ? ", with zstd -d --long=31" : "");
}
bool is_limit(const std::string& reason) {
  for (const char* part : {"nsupported", "too much memory", "Out of memory", "Cannot allocate memory"})
    if (reason.find(part) != std::string::npos) return true;
  return false;
}

// libarchive reading a blob, or a stream.
class Reader {
 public:
  explicit Reader(const Blob& blob) : Reader(&blob, nullptr) {
    // libarchive does not compare the checksums of gzip.
    if (recognised_format(blob) == "gzip") {
      unpacked_ = open_gzip(blob);
      return;
    }
    begin_ = at_ = content_begin(blob);
    archive_read_set_seek_callback(reader_.get(), seek);
  }
  explicit Reader(ByteStream& stream) : Reader(nullptr, &stream) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  archive* get() const { return reader_.get(); }

  // The bytes that libarchive was given last, and the rest of the stream, unless that is much.
  std::string rest_of_stream() {
    constexpr std::uint64_t much = 1 << 24;
    std::string rest(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(given_));
    const std::size_t before = rest.size();
    if (stream_->left() > much) return {};
    rest.resize(before + static_cast<std::size_t>(stream_->left()));
    stream_->read(rest.data() + before, rest.size() - before);
    return rest;
  }

  // Bytes of the blob that libarchive has used.
  std::uint64_t used() const { return begin_ + static_cast<std::uint64_t>(archive_filter_bytes(reader_.get(), -1)); }

  // Why the last call failed. An exception of the blob must not pass through libarchive, and says more than
  // libarchive's error, so it is thrown instead.
  std::string reason() const {
    if (failure_) std::rethrow_exception(failure_);
    const char* text = archive_error_string(reader_.get());
    std::string reason = text == nullptr ? "it is cut short" : text;
    reason.erase(reason.find_last_not_of(" \n") + 1);  // some end with a line feed
    return reason;
  }

 private:
  struct Free {
    void operator()(archive* reader) const { archive_read_free(reader); }
  };

  Reader(const Blob* blob, ByteStream* stream) : blob_(blob), stream_(stream), buffer_(std::size_t{1} << 16) {
    LONGSTRIDE_CHECK(reader_ != nullptr, "libarchive gives no reader");
    archive_read_set_read_callback(reader_.get(), supply);
    archive_read_set_callback_data(reader_.get(), this);
  }

  static la_ssize_t supply(archive*, void* self, const void** out) {
    auto& a = *static_cast<Reader*>(self);
    try {
      *out = a.buffer_.data();
      if (a.unpacked_ != nullptr) return static_cast<la_ssize_t>(a.unpacked_->read(a.buffer_.data(), a.buffer_.size()));
      const std::uint64_t left = a.stream_ != nullptr ? a.stream_->left() : a.blob_->size() - a.at_;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(a.buffer_.size(), left));
      if (a.stream_ != nullptr)
        a.stream_->read(a.buffer_.data(), count);
      else
        a.blob_->read(a.at_, a.buffer_.data(), count);
      a.at_ += count;
      if (count > 0) a.given_ = count;
      return static_cast<la_ssize_t>(count);
    } catch (...) {
      a.failure_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
  }

  static la_int64_t seek(archive*, void* self, la_int64_t offset, int whence) {
    auto& a = *static_cast<Reader*>(self);
    const auto size = static_cast<la_int64_t>(a.blob_->size());
    const la_int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? static_cast<la_int64_t>(a.at_) : size;
    a.at_ = static_cast<std::uint64_t>(std::clamp<la_int64_t>(offset, -base, size - base) + base);
    return static_cast<la_int64_t>(a.at_);
  }

  const Blob* blob_;  // or null
  ByteStream* stream_;
  std::unique_ptr<UnsizedStream> unpacked_;  // the blob's content, if gzip has compressed it
  std::vector<std::uint8_t> buffer_;
  std::uint64_t begin_ = 0, at_ = 0;  // in the blob
  std::size_t given_ = 0;             // bytes of the buffer
  std::exception_ptr failure_;
  std::unique_ptr<archive, Free> reader_{archive_read_new()};
};

// While it lives, this thread converts text from and to UTF-8. A zip archive may say that its names are UTF-8;
// libarchive converts such names to the locale's character set, and one that does not fit is lost. Other names are
// not converted, so they are read without this: UTF-8 also joins a letter and its accent to one character.
class Utf8Locale {
 public:
  explicit Utf8Locale(bool wanted) {
    static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (wanted && utf8 != nullptr) before_ = ::uselocale(utf8);
  }
  ~Utf8Locale() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t before_ = nullptr;
};

// A zip archive without files is only the end of a directory, which libarchive refuses.
bool is_empty_zip(const Blob& blob) {
  std::array<std::uint8_t, 22> end;
  if (blob.size() < end.size()) return false;
  blob.read(0, end.data(), end.size());
  constexpr std::array<std::uint8_t, 4> magic = {'P', 'K', 5, 6};
  constexpr std::size_t comment_at = 20;  // the comment's size; before it are numbers and sizes of files
  return std::equal(magic.begin(), magic.end(), end.begin()) &&
         std::all_of(end.begin() + magic.size(), end.begin() + comment_at,
                     [](std::uint8_t byte) { return byte == 0; }) &&
         blob.size() == end.size() + end[comment_at] + 256 * end[comment_at + 1];
}

class LibArchive final : public Archive {
 public:
  explicit LibArchive(const Blob& blob)
      : blob_(&blob),
        archive_name_(blob.name()),
        zip_(recognised_format(blob) == "zip"),
        empty_(zip_ && is_empty_zip(blob)),
        reader_(blob) {
    archive_read_support_format_tar(reader_.get());
    // cat joins tar archives too. Without this, whatever follows the first end mark is dropped, even if it is no
    // archive.
    LONGSTRIDE_CHECK(archive_read_set_option(reader_.get(), "tar", "read_concatenated_archives", "1") == ARCHIVE_OK,
                     "libarchive has no option to read joined archives");
    archive_read_support_format_zip_seekable(reader_.get());  // reads the directory, so a truncated zip is refused
    archive_read_support_filter_xz(reader_.get());
    archive_read_support_filter_bzip2(reader_.get());
    archive_read_support_filter_zstd(reader_.get());
    if (!empty_ && archive_read_open1(reader_.get()) != ARCHIVE_OK) throw no_archive(blob);
  }
  explicit LibArchive(std::unique_ptr<ByteStream> zip)
      : archive_name_(zip->name()), zip_(true), stream_(std::move(zip)), reader_(*stream_) {
    archive_read_support_format_zip_streamable(reader_.get());
    if (archive_read_open1(reader_.get()) != ARCHIVE_OK) throw damaged();
  }

  bool next() override {
    while (!empty_) {
      if (entry_ != nullptr) archive_read_data_skip(reader_.get());
      const la_int64_t before = archive_filter_bytes(reader_.get(), 0);
      const Utf8Locale names(zip_);
      const int state = archive_read_next_header(reader_.get(), &entry_);
      if (state == ARCHIVE_EOF) {
        check_end(before);
        return false;
      }
      // A name outside the locale's character set is only a warning; if it is given, it is unchanged.
      const bool named = state == ARCHIVE_WARN && archive_errno(reader_.get()) == EILSEQ;
      if (state != ARCHIVE_OK && !named) throw damaged();
      const bool link = archive_entry_filetype(entry_) == AE_IFLNK || archive_entry_hardlink(entry_) != nullptr;
      const bool file = archive_entry_filetype(entry_) == AE_IFREG;
      ++entries_;
      links_ += link ? 1 : 0;
      with_content_ += link || (file && archive_entry_size(entry_) > 0) ? 1 : 0;
      if (link || !file) continue;
      take_entry();
      return true;
    }
    return false;
  }

  const std::string& member() const override { return member_; }
  std::int64_t links() const override { return links_; }
  const std::string& name() const override { return name_; }
  std::uint64_t left() const override { return left_; }

  void read(void* out, std::size_t count) override {
    if (count > left_) throw user_error("{}: ends {} bytes too early", name_, count - left_);
    read_data(static_cast<std::uint8_t*>(out), count);
    left_ -= count;
    std::uint8_t more = 0;
    if (left_ == 0 && archive_read_data(reader_.get(), &more, 1) != 0) throw damaged();
  }

 private:
  // before: bytes used until the end was looked for.
  void check_end(la_int64_t before) {
    const bool zip = (archive_format(reader_.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP;
    // A tar archive ends with a mark; libarchive does not report its absence.
    if (!zip && archive_filter_bytes(reader_.get(), 0) == before)
      throw user_error(
          "{}: lacks the end mark of a tar archive, as one that is cut short; copy or download it again, or use the "
          "folder that it unpacks to",
          archive_name_);
    if (!zip) return;
    if (blob_ != nullptr)
      compare(with_content_, files_in_zip_directory(*blob_));
    else
      compare(entries_, entries_of_zip_stream());
  }

  void compare(std::int64_t found, std::int64_t listed) const {
    if (found == listed) return;
    throw DamagedFile(user_error(
        "{}: is a damaged zip archive ({} of the {} files in its directory are there); copy or download it again",
        archive_name_, thousands(found), thousands(listed)));
  }

  // As its last bytes say, unless they are a comment or the number needs more bits.
  std::int64_t entries_of_zip_stream() {
    std::string end = reader_.rest_of_stream();
    constexpr std::size_t size = 22, count_at = 10;
    if (end.size() > size) end.erase(0, end.size() - size);
    if (end.size() < size || !end.starts_with("PK\5\6")) return entries_;
    const auto count = static_cast<std::int64_t>(number_of(std::string_view(end).substr(count_at, 2), false));
    return count == 0xFFFF ? entries_ : count;
  }

  // The name and the size of the current file.
  void take_entry() {
    const char* name = archive_entry_pathname(entry_);
    if (name == nullptr || *name == 0)
      throw user_error("{}: a file in it has a name that cannot be read; unpack it to a folder and use that",
                       archive_name_);
    member_ = name;
    name_ = archive_name_ + ":" + member_;
    if (archive_entry_is_encrypted(entry_) != 0)
      throw user_error("{}: '{}' in it is encrypted; unpack it first", archive_name_, member_);
    if (archive_entry_size_is_set(entry_) == 0 || archive_entry_size(entry_) < 0)
      throw user_error("{}: '{}' in it has no size; pack it again", archive_name_, member_);
    left_ = static_cast<std::uint64_t>(archive_entry_size(entry_));
  }

  // A sparse file may end with a hole. libarchive then ends once before it, and once more after its zeros.
  void read_data(std::uint8_t* out, std::size_t count) {
    for (bool ended = false; count > 0;) {
      const la_ssize_t got = archive_read_data(reader_.get(), out, count);
      if (got < 0 || (got == 0 && ended)) throw damaged();
      ended = static_cast<std::size_t>(got) < count;
      out += got, count -= static_cast<std::size_t>(got);
    }
  }

  // A blob in which libarchive recognises no archive. Users compress single files too.
  DamagedFile no_archive(const Blob& blob) const {
    const DamagedFile reason = damaged();
    const std::string format = recognised_format(blob);
    if (format != "gzip" && format != "xz" && format != "bzip2" && format != "zstd") return reason;
    try {
      std::array<std::uint8_t, 512> head;
      const auto content = format == "gzip" ? open_gzip(blob) : open_compressed(blob, format);
      if (content->read(head.data(), head.size()) == 0) return reason;
      if (recognised_format(MemoryBlob("", head.data(), head.size())) == "tar") return reason;
    } catch (const UserError&) {
      return reason;
    }
    return DamagedFile(user_error("{}: is a single file compressed by {}, not an archive of files; unpack it first",
                                  archive_name_, format));
  }

  DamagedFile damaged() const {
    const std::string& name = member_.empty() ? archive_name_ : name_;
    const std::string reason = reader_.reason();
    if (is_limit(reason)) throw beyond_limits(name, reason);
    return DamagedFile(
        user_error("{}: is not a tar or zip archive, or is damaged ({}); copy or download it again", name, reason));
  }

  const Blob* blob_ = nullptr;  // the input, if it is not a stream
  std::string archive_name_;
  bool zip_;  // as its first bytes say
  bool empty_ = false;
  std::unique_ptr<ByteStream> stream_;  // the input, if it is not a blob
  Reader reader_;
  archive_entry* entry_ = nullptr;  // the current one
  std::string member_, name_;
  std::uint64_t left_ = 0;
  std::int64_t entries_ = 0, links_ = 0, with_content_ = 0;  // so far; the last counts links and files
};

// libarchive's "raw" format: a compressed file is an archive of one nameless file.
class Compressed final : public UnsizedStream {
 public:
  Compressed(const Blob& blob, const std::string& format) : blob_(blob), reader_(blob), format_(format) {
    archive_read_support_format_raw(reader_.get());
    if (format == "xz") archive_read_support_filter_xz(reader_.get());
    if (format == "bzip2") archive_read_support_filter_bzip2(reader_.get());
    if (format == "zstd") archive_read_support_filter_zstd(reader_.get());
    archive_entry* entry = nullptr;
    if (archive_read_open1(reader_.get()) != ARCHIVE_OK ||
        archive_read_next_header(reader_.get(), &entry) != ARCHIVE_OK)
      throw damaged(reader_.reason());
    // One filter unpacks, the other reads the file. Without the first, the content would be the compressed bytes.
    const int filters = archive_filter_count(reader_.get());
    if (filters < 2) throw damaged("its beginning is not valid");
    if (filters > 2) throw user_error("{}: is compressed twice ({}); unpack it first", blob_.name(), format_);
  }

  std::size_t read(void* out, std::size_t most) override {
    const la_ssize_t got = archive_read_data(reader_.get(), out, most);
    if (got < 0) throw damaged(reader_.reason());
    // libarchive takes anything after the compressed content that is not more of it for the end.
    const std::uint64_t used = reader_.used();
    if (static_cast<std::size_t>(got) < most && used < blob_.size())
      throw trailing_bytes(blob_.name(), blob_.size() - used, format_);
    return static_cast<std::size_t>(got);
  }

 private:
  DamagedFile damaged(const std::string& why) const {
    if (is_limit(why)) throw beyond_limits(blob_.name(), why);
    return DamagedFile(
        user_error("{}: is damaged or an empty {} file ({}); copy or download it again", blob_.name(), format_, why));
  }

  const Blob& blob_;
  Reader reader_;
  std::string format_;
};

}  // namespace

std::unique_ptr<Archive> open_archive(const Blob& blob) { return std::make_unique<LibArchive>(blob); }

std::unique_ptr<Archive> open_zip_stream(std::unique_ptr<ByteStream> stream) {
  return std::make_unique<LibArchive>(std::move(stream));
}

std::unique_ptr<UnsizedStream> open_compressed(const Blob& blob, const std::string& format) {
  return std::make_unique<Compressed>(blob, format);
}

}  // namespace longstride
