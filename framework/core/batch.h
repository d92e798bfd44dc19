// The rows of tokens that a step reads, and everything else that a model needs to know about them. On the device for a
// model, in host memory for the sources that fill it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/core/tensor.h"
#include "kernels/base/ids.h"

namespace longstride {

// Ids of tokens, of 16 bits each where a vocabulary exceeds 256. Bytes are themselves, and encoders of bytes have the
// first of these besides. Other tokens, as of a SentencePiece model, are numbered from 0.
namespace ids {
inline constexpr std::int64_t bytes = 256;
inline constexpr std::int64_t mask = 256, pad = 257, classify = 258, separate = 259;
inline constexpr std::int64_t all = 260;
}  // namespace ids

// Absent fields take no memory. Without targets, position i predicts tokens[i] and reads tokens[i - 1], the start
// vector at i = 0. With targets it predicts targets[i] and reads tokens[i]; if the row starts a stream, position 0
// reads the start vector instead.
struct Batch {
  Tensor tokens;        // (rows, seq) u8 or u16
  Tensor targets = {};  // (rows, asked), of the type of tokens; asked is seq, unless BatchFields says otherwise
  Tensor weights = {};  // (rows, asked) f32: of each loss; absent: 1
  // (rows, seq) i32, never decreasing along a row: the number of the position's document in its row. The first position
  // of a document reads the start vector.
  Tensor groups = {};
  // (rows, seq) u8: 0 or 1 in turn for the groups of a document, such as sentences, or for the documents of a row
  Tensor types = {};
  // (rows, seq) i32, never decreasing along a row: the number of the position's group, such as a sentence
  // (RowBytes::groups), counted from any number. Padding is of the last one.
  Tensor sentences = {};
  // (rows) u8: 1 where the row does not continue that of the step before, or not its document; absent: everywhere
  Tensor starts = {};

  std::int64_t rows() const { return tokens.size(0); }
  const Tensor& predicted() const { return targets.given() ? targets : tokens; }
  // Rows [begin, end).
  Batch slice(std::int64_t begin, std::int64_t end) const;
  // Every row cut into `sequences` of equal length. Only for tokens, groups, types, and targets and weights of every
  // position.
  Batch cut(std::int64_t sequences) const;
};

struct BatchField {
  const char* name;
  Tensor Batch::*tensor;
};
inline constexpr BatchField batch_fields[] = {{"tokens", &Batch::tokens},       {"targets", &Batch::targets},
                                              {"weights", &Batch::weights},     {"groups", &Batch::groups},
                                              {"sentences", &Batch::sentences}, {"types", &Batch::types},
                                              {"starts", &Batch::starts}};

// The fields that a model reads, and the width of its ids.
struct BatchFields {
  bool wide = false;  // ids of 16 bits
  bool targets = false, weights = false, groups = false, sentences = false, types = false, starts = false;
  std::int64_t asked = 0;  // targets, weights and losses of a row, as of one class or of groups; 0: one per position

  std::int64_t losses(std::int64_t positions) const { return asked > 0 ? asked : positions; }  // a row's
};

// A batch's fields one after another in one block of memory, which is filled, read ahead and sent to the device as a
// whole. Every field begins at a multiple of `alignment` bytes.
class BatchLayout {
 public:
  static constexpr std::size_t alignment = 256;
  BatchLayout(const BatchFields& fields, std::int64_t rows, std::int64_t context);
  std::size_t bytes() const { return bytes_; }
  Batch at(void* block) const;  // null while planning

 private:
  Batch place(std::byte* block, std::size_t& end) const;
  BatchFields fields_;
  std::int64_t rows_, context_;
  std::size_t bytes_ = 0;
};

// Where the parts of a text, such as documents, end: at successive boundaries, which rise from 0 and may repeat. A row
// begins at `offset` of them. Without any, all is one part.
struct RowEnds {
  std::span<const std::int64_t> boundaries = {};
  std::int64_t offset = 0;

  // Calls f(begin, end) for every part of a row's first `count` positions, in order.
  template <class F>
  void each(std::int64_t count, const F& f) const {
    auto next = std::upper_bound(boundaries.begin(), boundaries.end(), offset);
    for (std::int64_t begin = 0; begin < count;) {
      const std::int64_t end = next == boundaries.end() ? count : std::min(*next - offset, count);
      f(begin, end);
      next = std::upper_bound(next, boundaries.end(), offset + end);
      begin = end;
    }
  }
};

// Host rows of any fields that predict every token from those before it. Row `row` predicts `tokens` (seq); `before` is
// the token that precedes them, which is not read if the row starts a stream. Weights become 1.
void write_row(const Batch& batch, std::int64_t row, kernels::Ids tokens, int before, bool starts);
inline void write_row(const Batch& batch, std::int64_t row, const std::uint8_t* bytes, std::uint8_t before,
                      bool starts) {
  write_row(batch, row, kernels::Ids{bytes}, before, starts);
}
// The groups of row `row`, if the batch has them: the documents of its first `count` positions. Positions from `count`
// on are padding, a group of their own. A row that begins with a document starts.
void write_groups(const Batch& batch, std::int64_t row, const RowEnds& documents, std::int64_t count);

}  // namespace longstride
