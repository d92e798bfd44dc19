#include "datasets/formats/zip.h"

#include <zlib.h>

#include <algorithm>
#include <optional>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::uint32_t end_mark = 0x06054b50, end64_mark = 0x06064b50, locator64_mark = 0x07064b50;
constexpr std::uint32_t directory_mark = 0x02014b50, local_mark = 0x04034b50;
constexpr std::uint64_t end_size = 22, locator64_size = 20, directory_size = 46, local_size = 30;
constexpr std::uint64_t largest_directory = 64 << 20;

UserError damaged(const Blob& blob, const std::string& what) {
  return user_error("{}: is a damaged zip archive ({}); copy or download it anew", blob.name(), what);
}

std::uint64_t number(const std::uint8_t* at, int bytes) {
  std::uint64_t n = 0;
  for (int i = bytes - 1; i >= 0; --i) n = n << 8 | at[i];
  return n;
}

struct Directory {
  std::uint64_t offset = 0, size = 0, entries = 0;
};

// The directory is found from the end of the file, before which a comment may stand.
Directory find_directory(const Blob& blob) {
  const std::uint64_t tail_size = std::min<std::uint64_t>(blob.size(), end_size + 65535);
  const std::uint64_t tail_at = blob.size() - tail_size;
  std::vector<std::uint8_t> tail(static_cast<std::size_t>(tail_size));
  blob.read(tail_at, tail.data(), tail.size());
  std::optional<std::size_t> end;
  for (std::size_t back = end_size; back <= tail.size() && !end; ++back)
    if (number(&tail[tail.size() - back], 4) == end_mark) end = tail.size() - back;
  if (!end) throw user_error("{}: is no zip archive or is cut short; an .npz file is one", blob.name());
  Directory directory;
  directory.entries = number(&tail[*end + 10], 2);
  directory.size = number(&tail[*end + 12], 4);
  directory.offset = number(&tail[*end + 16], 4);
  const bool wide = directory.entries == 0xFFFF || directory.size == 0xFFFFFFFF || directory.offset == 0xFFFFFFFF;
  if (wide && *end >= locator64_size && number(&tail[*end - locator64_size], 4) == locator64_mark) {
    std::uint8_t record[56];
    blob.read(number(&tail[*end - locator64_size + 8], 8), record, sizeof record);
    if (number(record, 4) != end64_mark) throw damaged(blob, "no zip64 record where one is announced");
    directory.entries = number(record + 32, 8);
    directory.size = number(record + 40, 8);
    directory.offset = number(record + 48, 8);
  }
  if (directory.size > blob.size() || directory.offset > blob.size() - directory.size)
    throw damaged(blob, "its directory lies outside of it");
  if (directory.size > largest_directory || directory.entries > directory.size / directory_size)
    throw damaged(blob, "its directory has an impossible size");
  return directory;
}

// Sizes and offsets that do not fit 32 bits stand in an extra field, in this order, those only that do not fit.
void read_zip64(const Blob& blob, const std::uint8_t* extra, std::size_t size, ZipMember& member) {
  for (std::size_t at = 0; at + 4 <= size;) {
    const std::size_t kind = number(extra + at, 2), length = number(extra + at + 2, 2);
    at += 4;
    if (length > size - at) throw damaged(blob, "an extra field is too long");
    if (kind == 1) {
      std::size_t from = at;
      for (std::uint64_t* value : {&member.size, &member.compressed, &member.header}) {
        if (*value != 0xFFFFFFFF) continue;
        if (from + 8 > at + length) throw damaged(blob, "a zip64 field is too short");
        *value = number(extra + from, 8);
        from += 8;
      }
    }
    at += length;
  }
}

class MemberStream final : public ByteStream {
 public:
  MemberStream(const Blob& blob, const ZipMember& member, std::uint64_t begin, Meter* meter)
      : blob_(blob), member_(member), source_(blob, begin, begin + member.compressed, nullptr, meter) {
    name_ = blob.name() + ":" + member.name;
    if (member.method == 0) return;
    LONGSTRIDE_CHECK(inflateInit2(&inflater_, -MAX_WBITS) == Z_OK, "zlib gives no decoder");
    inflating_ = true;
  }
  ~MemberStream() override {
    if (inflating_) inflateEnd(&inflater_);
  }
  MemberStream(const MemberStream&) = delete;
  MemberStream& operator=(const MemberStream&) = delete;

  const std::string& name() const override { return name_; }
  std::uint64_t left() const override { return member_.size - produced_; }

  void read(void* out, std::size_t count) override {
    if (count > left()) throw user_error("{}: ends {} bytes too early", name_, count - left());
    if (inflating_)
      inflate_into(static_cast<std::uint8_t*>(out), count);
    else
      source_.read(out, count);
    produced_ += count;
    crc_ = static_cast<std::uint32_t>(crc32_z(crc_, static_cast<const Bytef*>(out), count));
    if (left() == 0 && crc_ != member_.crc) throw damaged(blob_, "the checksum of " + member_.name + " is wrong");
  }

 private:
  void inflate_into(std::uint8_t* out, std::size_t count) {
    while (count > 0) {
      if (inflater_.avail_in == 0) {
        const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(sizeof input_, source_.left()));
        if (taken == 0) throw damaged(blob_, member_.name + " ends too early");
        source_.read(input_, taken);
        inflater_.next_in = input_;
        inflater_.avail_in = static_cast<uInt>(taken);
      }
      const auto wanted = static_cast<uInt>(std::min<std::size_t>(count, 1 << 30));
      inflater_.next_out = out;
      inflater_.avail_out = wanted;
      const int state = inflate(&inflater_, Z_NO_FLUSH);
      const std::size_t made = wanted - inflater_.avail_out;
      out += made, count -= made;
      if (state != Z_OK && !(state == Z_STREAM_END && count == 0))
        throw damaged(blob_, member_.name + " cannot be inflated");
    }
  }

  const Blob& blob_;
  ZipMember member_;
  std::string name_;
  BlobStream source_;
  std::uint64_t produced_ = 0;
  std::uint32_t crc_ = 0;
  bool inflating_ = false;
  z_stream inflater_ = {};
  std::uint8_t input_[1 << 16];
};

}  // namespace

std::vector<ZipMember> zip_members(const Blob& blob) {
  const Directory directory = find_directory(blob);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(directory.size));
  blob.read(directory.offset, bytes.data(), bytes.size());
  std::vector<ZipMember> members;
  std::size_t at = 0;
  for (std::uint64_t e = 0; e < directory.entries; ++e) {
    if (bytes.size() - at < directory_size || number(&bytes[at], 4) != directory_mark)
      throw damaged(blob, "an entry of its directory is missing");
    const std::uint8_t* entry = &bytes[at];
    const std::size_t name = number(entry + 28, 2), extra = number(entry + 30, 2), comment = number(entry + 32, 2);
    if (name + extra + comment > bytes.size() - at - directory_size)
      throw damaged(blob, "an entry of its directory is cut short");
    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(entry) + directory_size, name);
    if ((number(entry + 8, 2) & 1) != 0)
      throw user_error("{}: '{}' in it is encrypted; unpack it first", blob.name(), member.name);
    member.method = static_cast<std::uint16_t>(number(entry + 10, 2));
    member.crc = static_cast<std::uint32_t>(number(entry + 16, 4));
    member.compressed = number(entry + 20, 4);
    member.size = number(entry + 24, 4);
    member.header = number(entry + 42, 4);
    read_zip64(blob, entry + directory_size + name, extra, member);
    members.push_back(std::move(member));
    at += directory_size + name + extra + comment;
  }
  return members;
}

std::unique_ptr<ByteStream> open_zip_member(const Blob& blob, const ZipMember& member, Meter* meter) {
  if (member.method != 0 && member.method != 8)
    throw user_error(
        "{}: '{}' in it is compressed by method {}, but only stored and deflated are read; save it with "
        "numpy.savez",
        blob.name(), member.name, member.method);
  if (member.header > blob.size() || blob.size() - member.header < local_size)
    throw damaged(blob, member.name + " lies outside of it");
  std::uint8_t local[local_size];
  blob.read(member.header, local, sizeof local);
  if (number(local, 4) != local_mark) throw damaged(blob, member.name + " has no header");
  const std::uint64_t begin = member.header + local_size + number(local + 26, 2) + number(local + 28, 2);
  if (begin > blob.size() || member.compressed > blob.size() - begin)
    throw damaged(blob, member.name + " lies outside of it");
  if (member.method == 0 && member.compressed != member.size) throw damaged(blob, member.name + " has two sizes");
  return std::make_unique<MemberStream>(blob, member, begin, meter);
}

}  // namespace longstride
