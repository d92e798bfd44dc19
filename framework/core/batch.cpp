#include "framework/core/batch.h"

#include <algorithm>
#include <utility>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// Calls f on a field of two batches, for every field.
template <class F>
void for_each_field(const Batch& from, Batch& to, F&& f) {
  for (const auto& [_, field] : batch_fields)
    if ((from.*field).given()) to.*field = f(from.*field);
}

void write_ids(const Tensor& to, std::int64_t begin, kernels::Ids ids, std::int64_t count) {
  if (to.dtype() == Dtype::u16) {
    auto* const out = to.as<std::uint16_t>() + begin;
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint16_t>(ids[i]);
    return;
  }
  LONGSTRIDE_CHECK(!ids.wide, "ids of 16 bits for tokens of {}", to.shape().text());
  std::copy_n(static_cast<const std::uint8_t*>(ids.data), count, to.as<std::uint8_t>() + begin);
}

}  // namespace

Batch Batch::slice(std::int64_t begin, std::int64_t end) const {
  Batch part;
  for_each_field(*this, part, [&](const Tensor& t) { return t.slice(0, begin, end); });
  return part;
}

Batch Batch::cut(std::int64_t sequences) const {
  const auto of_positions = [&](const Tensor& t) { return !t.given() || t.shape() == tokens.shape(); };
  LONGSTRIDE_CHECK(sequences == 1 || (!starts.given() && of_positions(targets) && of_positions(weights)),
                   "rows of a stream, or asked as a whole, cut into {}", sequences);
  if (sequences == 1) return *this;
  Batch cut;
  for_each_field(*this, cut, [&](const Tensor& t) {
    return t.reshape({t.size(0) * sequences, t.size(1) / sequences});
  });
  return cut;
}

BatchLayout::BatchLayout(const BatchFields& fields, std::int64_t rows, std::int64_t context)
    : fields_(fields), rows_(rows), context_(context) {
  place(nullptr, bytes_);
}

Batch BatchLayout::at(void* block) const {
  std::size_t end = 0;
  return place(static_cast<std::byte*>(block), end);
}

Batch BatchLayout::place(std::byte* block, std::size_t& end) const {
  const auto take = [&](bool given, Dtype dtype, const Shape& shape) {
    if (!given) return Tensor{};
    const std::size_t begin = (end + alignment - 1) / alignment * alignment;
    const Tensor field(block == nullptr ? nullptr : block + begin, dtype, shape);
    end = begin + field.bytes();
    return field;
  };
  const Shape each = {rows_, context_}, asked = {rows_, fields_.losses(context_)};
  const Dtype id = fields_.wide ? Dtype::u16 : Dtype::u8;
  Batch batch;
  batch.tokens = take(true, id, each);
  batch.targets = take(fields_.targets, id, asked);
  batch.weights = take(fields_.weights, Dtype::f32, asked);
  batch.groups = take(fields_.groups, Dtype::i32, each);
  batch.types = take(fields_.types, Dtype::u8, each);
  batch.sentences = take(fields_.sentences, Dtype::i32, each);
  batch.starts = take(fields_.starts, Dtype::u8, {rows_});
  return batch;
}

void write_row(const Batch& batch, std::int64_t row, kernels::Ids tokens, int before, bool starts) {
  const std::int64_t seq = batch.tokens.size(1), begin = row * seq;
  if (batch.targets.given()) {
    const auto one = static_cast<std::uint16_t>(before);  // little-endian, so its first byte is the id of a byte
    write_ids(batch.targets, begin, tokens, seq);
    write_ids(batch.tokens, begin, {&one, tokens.wide}, 1);
    write_ids(batch.tokens, begin + 1, tokens, seq - 1);
  } else {
    write_ids(batch.tokens, begin, tokens, seq);
  }
  if (batch.weights.given()) std::fill_n(batch.weights.as<float>() + begin, seq, 1.0f);
  if (batch.starts.given()) batch.starts.as<std::uint8_t>()[row] = starts ? 1 : 0;
}

void write_groups(const Batch& batch, std::int64_t row, const RowEnds& documents, std::int64_t count) {
  const std::int64_t seq = batch.tokens.size(1);
  if (!batch.groups.given()) return;
  auto* groups = batch.groups.as<std::int32_t>() + row * seq;
  const auto& [boundaries, offset] = documents;
  if (batch.starts.given() && std::binary_search(boundaries.begin(), boundaries.end(), offset))
    batch.starts.as<std::uint8_t>()[row] = 1;
  std::int32_t group = 0;
  documents.each(count,
                 [&](std::int64_t begin, std::int64_t end) { std::fill(groups + begin, groups + end, group++); });
  std::fill(groups + count, groups + seq, group);
}

}  // namespace longstride
