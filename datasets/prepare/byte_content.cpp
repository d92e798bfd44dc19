#include "datasets/prepare/byte_content.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "datasets/formats/archive.h"
#include "datasets/formats/gzip.h"
#include "datasets/formats/input_files.h"
#include "datasets/prepare/zip_checksums.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::size_t head_bytes = first_bytes;

// A content this many times as large as its file is no text: gzip reaches 1,032 on zeros, and text stays below 100.
constexpr std::uint64_t most_expansion = 2000;
constexpr std::uint64_t harmless_bytes = std::uint64_t{64} << 20;  // allowed whatever the size of the file

// "gzip", "zip", "tar" .., of packed bytes; empty otherwise.
std::string packed_format(const std::uint8_t* head, std::size_t count) {
  const std::string format = recognised_format(MemoryBlob("", head, count));
  for (const char* packed :
       {"tar", "gzip", "xz", "bzip2", "zstd", "zip", "split zip", "7z", "lz4", "lzma", "lzip", "rar", "compress"})
    if (format == packed) return format;
  return "";
}

std::unique_ptr<UnsizedStream> open_unpacked(const Blob& blob, const std::string& compression) {
  return compression == "gzip" ? open_gzip(blob) : open_compressed(blob, compression);
}

class PlainContent final : public UnsizedStream {
 public:
  explicit PlainContent(const Blob& blob) : blob_(blob) {}
  std::size_t read(void* out, std::size_t most) override {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, blob_.size() - at_));
    blob_.read(at_, out, count);
    at_ += count;
    return count;
  }

 private:
  const Blob& blob_;
  std::uint64_t at_ = 0;
};

// "a/.b/c" and "./.a", but not "./a/../b".
bool is_hidden(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part(name.data() + begin, end - begin);
    if (part.starts_with('.') && part != "." && part != "..") return true;
    begin = end + 1;
  }
  return false;
}

// Documents that are zip archives: Office's have a list of contents, those of OpenDocument and EPUB a file that says
// so.
const char* kind_of_document(const std::string& member, std::string_view head) {
  if (member == "[Content_Types].xml") return "a document of Office (docx, xlsx, pptx)";
  if (member != "mimetype") return "";
  if (head.starts_with("application/vnd.oasis.opendocument")) return "an OpenDocument file";
  return head.starts_with("application/epub") ? "an EPUB book" : "";
}

// The files of an archive that are not hidden. A name that occurs twice is refused: unpacked, the last file of that
// name would replace the others.
class ArchivedFiles {
 public:
  ArchivedFiles(const Blob& blob, bool any) : blob_(blob), any_(any), archive_(open_archive(blob)) {}

  bool next() {
    while (archive_->next()) {
      if (is_hidden(archive_->member())) continue;
      if (!names_.insert(std::filesystem::path("/" + archive_->member()).lexically_normal()).second)
        throw user_error("{}: holds two files named '{}'; unpack it to a folder and use that", blob_.name(),
                         archive_->member());
      refuse_document();
      return true;
    }
    if (names_.empty()) throw user_error("{}: holds no files; give an archive with files to read", blob_.name());
    return false;
  }
  Archive& file() { return *archive_; }
  std::int64_t links() const { return archive_->links(); }

  // The first bytes of the current file. UserError if it is packed, or no text.
  const std::string& read_head() {
    head_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(Fingerprint::head_bytes, archive_->left())));
    if (!head_.empty()) archive_->read(head_.data(), head_.size());
    const std::string format =
        packed_format(reinterpret_cast<const std::uint8_t*>(head_.data()), std::min(head_.size(), head_bytes));
    if (!format.empty())
      throw user_error("{}: is packed itself ({}); unpack {} to a folder and use that", archive_->name(), format,
                       blob_.name());
    if (any_) return head_;
    refuse_document();
    if (const FileFormat known = format_of(head_); known.family != FormatFamily::none)
      throw user_error("{}: {}; {}, {}", archive_->name(), described(known), remedy_of(known), take_any);
    return head_;
  }

 private:
  void refuse_document() const {
    const std::string document = any_ ? "" : kind_of_document(archive_->member(), head_);
    if (!document.empty())
      throw user_error(
          "{}: is {}, whose files are no text; extract its text first, as with `pandoc`, or take its files as they are "
          "with --any",
          blob_.name(), document);
  }

  const Blob& blob_;
  bool any_;
  std::string head_;
  std::unique_ptr<Archive> archive_;
  std::set<std::string> names_;
};

class ArchiveContent final : public UnsizedStream {
 public:
  ArchiveContent(const Blob& blob, bool any) : files_(blob, any) {}

  std::size_t read(void* out, std::size_t most) override {
    auto* next = static_cast<std::uint8_t*>(out);
    std::size_t got = 0;
    while (got < most) {
      if (open_ && head_at_ < head_->size()) {
        const std::size_t count = std::min(most - got, head_->size() - head_at_);
        std::memcpy(next + got, head_->data() + head_at_, count);
        head_at_ += count, got += count;
      } else if (open_ && files_.file().left() > 0) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most - got, files_.file().left()));
        files_.file().read(next + got, count);
        got += count;
      } else if (!open_next()) {
        break;
      }
    }
    return got;
  }

 private:
  bool open_next() {
    if (ended_) return false;
    open_ = files_.next();
    ended_ = !open_;
    if (open_) head_ = &files_.read_head();
    head_at_ = 0;
    return open_;
  }

  ArchivedFiles files_;
  bool open_ = false, ended_ = false;
  const std::string* head_ = nullptr;  // first bytes of the current file
  std::size_t head_at_ = 0;
};

void check_expansion(const Blob& blob, std::uint64_t bytes) {
  if (bytes <= std::max(harmless_bytes, most_expansion * blob.size())) return;
  throw user_error(
      "{}: has {} bytes but unpacks to more than {} times as many, as files made to fill disks do; unpack it first if "
      "you trust it",
      blob.name(), thousands(static_cast<std::int64_t>(blob.size())),
      thousands(static_cast<std::int64_t>(most_expansion)));
}

// Reading all of a compressed file compares its checksums.
Fingerprint count_unpacked(const Blob& blob, const std::string& compression) {
  const auto content = open_unpacked(blob, compression);
  std::vector<char> buffer(std::size_t{1} << 18);
  std::uint64_t sum = 0, head = 0;
  for (std::size_t got = buffer.size(); got == buffer.size();) {
    got = content->read(buffer.data(), buffer.size());
    if (sum == 0) head = head_of({buffer.data(), got});
    sum += got;
    check_expansion(blob, sum);
  }
  return {static_cast<std::int64_t>(sum), head};
}

// A tar archive is read to find its files, so their beginnings are there. Those of a zip archive would have to be
// unpacked twice; its files are told apart by their checksums unless they may be copies of other inputs.
ContentSize size_of_archived(const Blob& blob, bool any, bool only_input) {
  ContentSize size;
  std::uint64_t sum = 0;
  ArchivedFiles files(blob, any);
  const auto sums = only_input && recognised_format(blob) == "zip" ? zip_checksums(blob)
                                                                   : std::unordered_map<std::string, std::uint32_t>();
  for (; files.next(); check_expansion(blob, sum)) {
    const std::uint64_t bytes = files.file().left();
    const auto known = sums.find(files.file().member());
    sum = sum + bytes < sum ? UINT64_MAX : sum + bytes;
    size.parts.push_back(
        {files.file().name(),
         {static_cast<std::int64_t>(bytes), known != sums.end() ? known->second : head_of(files.read_head())},
         files.file().member()});
  }
  size.bytes = static_cast<std::int64_t>(sum);
  size.links = files.links();
  return size;
}

// At most `most` bytes of the beginning.
std::string beginning(UnsizedStream& content, std::size_t most) {
  std::string out(most, '\0');
  out.resize(content.read(out.data(), out.size()));
  return out;
}

// An archive without files is nothing but zeros, as any file may be, so its name decides.
bool is_empty_tar(const std::string& name, const std::uint8_t* head, std::size_t count) {
  if (count == 0 || std::any_of(head, head + count, [](std::uint8_t byte) { return byte != 0; })) return false;
  const std::string extension = lower_extension(name);
  for (const char* tar : {"tar", "tgz", "txz", "tbz", "tbz2", "tzst"})
    if (extension == tar) return true;
  const bool compressed = extension == "gz" || extension == "xz" || extension == "bz2" || extension == "zst";
  return compressed && lower_extension(std::filesystem::path(name).replace_extension().string()) == "tar";
}

// As the first bytes say.
Packing stated_packing(const Blob& blob) {
  std::array<std::uint8_t, head_bytes> head;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), blob.size()));
  blob.read(0, head.data(), count);
  const std::string format = packed_format(head.data(), count);
  if (format.empty()) return {"", is_empty_tar(blob.name(), head.data(), count)};
  if (format == "zip" || format == "tar") return {"", true};
  if (format != "gzip" && format != "xz" && format != "bzip2" && format != "zstd")
    throw user_error(
        "{}: is compressed ({}), so a model would learn its codes; unpack it first, or use its bytes as they are "
        "with --raw",
        blob.name(), format);
  const std::size_t got = open_unpacked(blob, format)->read(head.data(), head.size());
  const std::string inner = packed_format(head.data(), got);
  if (!inner.empty() && inner != "tar")
    throw user_error("{}: is packed twice ({} in {}); unpack it first", blob.name(), inner, format);
  return {format, inner == "tar" || is_empty_tar(blob.name(), head.data(), got)};
}

}  // namespace

bool named_like_packed(const std::string& name) {
  constexpr std::string_view extensions[] = {"zip",  "gz",  "tgz", "xz",  "txz", "bz2", "tbz",  "tbz2", "zst",
                                             "tzst", "tar", "7z",  "rar", "lz4", "lz",  "lzma", "z"};
  return std::find(std::begin(extensions), std::end(extensions), lower_extension(name)) != std::end(extensions);
}

Packing packing_of(const Blob& blob) {
  try {
    const Packing packing = stated_packing(blob);
    if (packing.archive) open_archive(blob)->next();
    return packing;
  } catch (const DamagedFile& damaged) {
    throw user_error("{}, or use its bytes as they are with --raw if it only looks packed", damaged.what());
  }
}

ContentSize content_size(const Blob& blob, const Packing& packing, bool only_input) {
  Fingerprint whole{static_cast<std::int64_t>(blob.size())};
  if (packing.none()) whole.head = head_of(beginning_of_content(blob, packing));
  if (!packing.compression.empty()) whole = count_unpacked(blob, packing.compression);
  if (packing.archive) return size_of_archived(blob, packing.any, only_input);
  return {whole.bytes, 0, {{blob.name(), whole}}};
}

std::string beginning_of_content(const Blob& blob, const Packing& packing) {
  return packing.archive ? "" : beginning(*open_content(blob, packing), Fingerprint::head_bytes);
}

std::unique_ptr<UnsizedStream> open_content(const Blob& blob, const Packing& packing) {
  if (packing.none()) return std::make_unique<PlainContent>(blob);
  if (packing.archive) return std::make_unique<ArchiveContent>(blob, packing.any);
  return open_unpacked(blob, packing.compression);
}

}  // namespace longstride
