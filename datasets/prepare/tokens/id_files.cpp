#include "datasets/prepare/tokens/id_files.h"

#include <algorithm>
#include <array>
#include <vector>

#include "datasets/formats/byte_input.h"
#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t header_bytes = 1024;
constexpr std::int32_t magic = 20240520, version = 1;

}  // namespace

IdFile::IdFile(const std::string& path) : blob_(std::make_shared<const FileBlob>(path)) {
  const auto size = static_cast<std::int64_t>(blob_->size());
  std::array<std::int32_t, 3> header{};
  if (size >= static_cast<std::int64_t>(sizeof header)) blob_->read(0, header.data(), sizeof header);
  if (size % 2 != 0)
    throw user_error("{}: has {} bytes, but ids of 16 bits take an even number; it is cut short, or something else",
                     path, thousands(size));
  const bool headed = header[0] == magic;
  if (headed && (header[1] != version || size < header_bytes || header[2] != (size - header_bytes) / 2))
    throw user_error(
        "{}: its header says version {} and {} ids, but this program reads version 1, and {} ids are behind it; copy "
        "or "
        "write it again",
        path, header[1], header[2], thousands(std::max<std::int64_t>(size - header_bytes, 0) / 2));
  begin_ = headed ? header_bytes : 0;
  count_ = (size - begin_) / 2;
  if (count_ == 0) throw user_error("{}: has no ids; choose another file", path);
  source_ = {path, size, ""};
}

void IdFile::read(std::int64_t vocabulary, const std::function<void(std::span<const std::uint16_t>)>& piece) {
  constexpr std::int64_t at_once = std::int64_t{1} << 20;
  Sha256 sha;
  std::vector<std::uint8_t> header(static_cast<std::size_t>(begin_));
  blob_->read(0, header.data(), header.size());
  sha.update(header.data(), header.size());
  std::vector<std::uint16_t> ids;
  for (std::int64_t first = 0; first < count_; first += std::ssize(ids)) {
    ids.resize(static_cast<std::size_t>(std::min(at_once, count_ - first)));
    blob_->read(static_cast<std::uint64_t>(begin_ + 2 * first), ids.data(), 2 * ids.size());
    sha.update(ids.data(), 2 * ids.size());
    const auto beyond = std::find_if(ids.begin(), ids.end(), [&](std::uint16_t id) { return id >= vocabulary; });
    if (beyond != ids.end())
      throw user_error(
          "{}: id number {} (at byte {}) is {}, but a vocabulary of {} has ids below that; correct --vocabulary, or "
          "choose a file of 16-bit ids",
          source_.name, first + (beyond - ids.begin()), begin_ + 2 * (first + (beyond - ids.begin())), *beyond,
          vocabulary);
    piece(ids);
  }
  blob_->check_unchanged();
  source_.sha256 = sha.hex();
}

}  // namespace longstride
