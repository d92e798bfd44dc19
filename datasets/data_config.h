// The `data:` section of a recipe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace longstride {

enum class DataKind : std::uint8_t { bytes, cifar10, images, audio, tokens };
inline bool is_text(DataKind kind) { return kind == DataKind::bytes || kind == DataKind::tokens; }

// windows: a seeded permutation of windows, anew each epoch. streams: each row of the global batch reads its own
// contiguous part of the split in order, window after window, and starts again at the end.
enum class DataOrder : std::uint8_t { windows, streams };

// Documents of a text: joined: rows are windows of the whole, whatever documents they cut. separate: the same windows,
// in which documents do not see one another. rows: each row is a document, or a piece of one, and padding.
enum class Documents : std::uint8_t { joined, separate, rows };
constexpr const char* name_of(Documents documents) {  // in recipes
  constexpr const char* names[] = {"joined", "separate", "rows"};
  return names[static_cast<std::size_t>(documents)];
}
// The positions of documents count from their own beginning, or from their row's. automatic: from their own, unless
// they are joined.
enum class DocumentPositions : std::uint8_t { automatic, restart, continued };

struct DataConfig {
  DataKind kind = DataKind::bytes;
  std::string path;          // HDF5 file written by `longstride prepare`
  std::int64_t context = 0;  // positions in one training sequence; images: rows * columns * channels
  bool cross_files = false;  // audio: let a window cross the boundary between two files
  DataOrder order = DataOrder::windows;
  Documents documents = Documents::joined;
  DocumentPositions document_positions = DocumentPositions::automatic;
  std::int64_t vocabulary = 256;  // ids of tokens
};

}  // namespace longstride
