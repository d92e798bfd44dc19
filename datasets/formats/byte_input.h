// Bytes to be read, wherever they are: a file, a member of an archive, memory (in tests and fuzzers).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/dataset.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"

namespace longstride {

// Read at any offset. `name` begins the messages about what is in it.
class Blob {
 public:
  virtual ~Blob() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size() const = 0;
  // UserError when fewer bytes are there.
  virtual void read(std::uint64_t offset, void* out, std::size_t count) const = 0;
  // UserError when what is read here has been written to since it was opened.
  virtual void check_unchanged() const {}
};

class FileBlob final : public Blob {
 public:
  explicit FileBlob(const std::string& path) : file_(path) {}
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
  virtual std::uint64_t left() const = 0;  // bytes not yet read, by what the file says
  // UserError when fewer bytes are left.
  virtual void read(void* out, std::size_t count) = 0;
};

// Tells how far a preparation is, in bytes of input.
class Meter {
 public:
  Meter(PrepareProgress progress, std::int64_t total) : progress_(std::move(progress)), total_(total) {}
  void add(std::int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  PrepareProgress progress_;
  std::int64_t total_, done_ = 0;
};

// Part of a blob as a stream. With a Sha256 or a Meter, they see every byte read.
class BlobStream final : public ByteStream {
 public:
  BlobStream(const Blob& blob, std::uint64_t begin, std::uint64_t end, Sha256* sha = nullptr, Meter* meter = nullptr)
      : blob_(blob), at_(begin), end_(end), sha_(sha), meter_(meter) {}
  const std::string& name() const override { return blob_.name(); }
  std::uint64_t left() const override { return end_ - at_; }
  void read(void* out, std::size_t count) override;
  std::uint64_t position() const { return at_; }
  // Reads on without keeping what is read.
  void skip(std::uint64_t count);

 private:
  const Blob& blob_;
  std::uint64_t at_, end_;
  Sha256* sha_;
  Meter* meter_;
};

// "gzip", "xz", "zip", "pickle" .. by the first bytes; empty when they say nothing.
std::string recognised_format(const Blob& blob);

}  // namespace longstride
