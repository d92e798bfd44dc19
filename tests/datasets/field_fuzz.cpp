// Any bytes as lines of JSON: an error, or the same texts in one piece and in many.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "datasets/prepare/text/field_stream.h"
#include "framework/core/errors.h"

namespace {

class Memory final : public longstride::UnsizedStream {
 public:
  Memory(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::size_t read(void* out, std::size_t most) override {
    const std::size_t count = most < left_ ? most : left_;
    if (count > 0) std::memcpy(out, data_, count);
    data_ += count, left_ -= count;
    return count;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// The texts, or the error.
std::string read_all(const std::uint8_t* data, std::size_t size, std::size_t piece) {
  std::string out;
  try {
    longstride::FieldStream stream(std::make_unique<Memory>(data, size), "fuzz", "text", longstride::record_mark);
    for (std::size_t got = piece; got == piece;) {
      const std::size_t before = out.size();
      out.resize(before + piece);
      got = stream.read(out.data() + before, piece);
      out.resize(before + got);
    }
  } catch (const longstride::UserError& error) {
    return error.what();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (read_all(data, size, 1 << 16) != read_all(data, size, 3)) std::abort();
  return 0;
}
