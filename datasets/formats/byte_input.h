// Bytes to read from a file, a member of an archive, or memory (in tests and fuzzers).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"

namespace longstride {

// A file that begins like a packed one and is none, or is damaged.
class DamagedFile : public UserError {
 public:
  explicit DamagedFile(const UserError& error) : UserError(error) {}
};

// The error that bytes follow the packed content of a whole file.
DamagedFile trailing_bytes(const std::string& name, std::uint64_t count, const std::string& format);

// Read at any offset. Messages about the content begin with `name`.
class Blob {
 public:
  virtual ~Blob() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size() const = 0;
  // UserError if fewer bytes are there.
  virtual void read(std::uint64_t offset, void* out, std::size_t count) const = 0;
  // UserError if the file has been written to since it was opened.
  virtual void check_unchanged() const {}
};

enum class Pointers : std::uint8_t { refuse, take };  // notes of Git LFS and git-annex that stand in for files

class FileBlob final : public Blob {
 public:
  explicit FileBlob(const std::string& path, Pointers pointers = Pointers::refuse);
  const std::string& name() const override { return file_.path(); }
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, void* out, std::size_t count) const override { file_.read(offset, out, count); }
  void check_unchanged() const override { file_.check_unchanged(); }

 private:
  InputFile file_;
};

class MemoryBlob final : public Blob {
 public:
  MemoryBlob(std::string name, const std::uint8_t* bytes, std::size_t size)
      : name_(std::move(name)), bytes_(bytes), size_(size) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, void* out, std::size_t count) const override;

 private:
  std::string name_;
  const std::uint8_t* bytes_;
  std::size_t size_;
};

// Read from first to last.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t left() const = 0;  // bytes not yet read, according to the file
  // UserError if fewer bytes are left.
  virtual void read(void* out, std::size_t count) = 0;
};

// A whole blob as a stream. With a Sha256, it sees every byte read.
class BlobStream final : public ByteStream {
 public:
  explicit BlobStream(const Blob& blob, Sha256* sha = nullptr) : blob_(blob), sha_(sha) {}
  const std::string& name() const override { return blob_.name(); }
  std::uint64_t left() const override { return blob_.size() - at_; }
  void read(void* out, std::size_t count) override;

 private:
  const Blob& blob_;
  std::uint64_t at_ = 0;
  Sha256* sha_;
};

// Read from first to last; how much there is shows only at the end.
class UnsizedStream {
 public:
  virtual ~UnsizedStream() = default;
  // The next bytes, fewer than `most` only at the end. UserError if the input is damaged or cut short.
  virtual std::size_t read(void* out, std::size_t most) = 0;
};

// An unsigned number of up to 8 bytes.
std::uint64_t number_of(std::string_view bytes, bool big_endian);

// True if the bytes begin a frame of zstd that holds no content: pzstd writes one before each with content.
bool begins_skippable_frame(std::string_view first);

// "gzip", "tar", "zip" .., or the name of format_of() (framework/core/files/first_bytes.h), such as "pickle"; empty if
// the first bytes, of which 512 suffice, match no known format.
std::string recognised_format(const Blob& blob);

}  // namespace longstride
