#include "framework/train/evaluate/row_reader.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {
namespace {

BatchFields fields_of(const Model& model, bool asks) {
  BatchFields fields = model.fields();
  if (!asks) fields.targets = fields.weights = false, fields.asked = 0;
  return fields;
}

Tensor block_of(Scratch& scratch, const BatchLayout& layout) {
  return scratch.tensor({static_cast<std::int64_t>(layout.bytes())}, Dtype::u8);
}

Shape scores_of(const Predicts& model, std::int64_t positions) {
  const Shape one = model.scores_shape(positions);
  return {1, one[0], one[1]};
}

}  // namespace

RowReader::RowReader(const Model& model, const Objective& objective, Context& ctx, bool asks)
    : model_(model), objective_(objective), ctx_(ctx), fields_(fields_of(model, asks)) {
  LONGSTRIDE_CHECK(model.states().empty(), "rows of a model that remembers, by themselves");
}

std::size_t RowReader::bytes(const Model& model, const Objective& objective, const Context& ctx, bool asks) {
  Arena counting;
  Context planned = ctx;
  planned.arena = &counting;
  RowReader reader(model, objective, planned, asks);
  reader.positions_ = model.context();
  if (asks && capability<Predicts>(model) != nullptr) reader.scores();
  if (!asks && capability<Encodes>(model) != nullptr) reader.hidden();
  return counting.high_water();
}

const Batch& RowReader::write(const RowBytes& of, std::int64_t count, const RowKey& key) {
  LONGSTRIDE_CHECK(count > 0 && count <= row_bytes(), "a row of {} bytes", count);
  positions_ = count + objective_.leading();
  const BatchLayout layout(fields_, 1, positions_);
  current_ = 1 - current_;
  Slot& slot = slots_[current_];
  slot.block.resize(layout.bytes());
  slot.host = layout.at(slot.block.data());
  const std::int64_t each = of.wide ? 2 : 1;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(positions_ * each), 0);  // as many as there are positions
  std::copy_n(of.bytes, count * each, bytes.data());
  RowBytes own = of;
  own.bytes = bytes.data(), own.length = count;
  objective_.write_row_of(slot.host, 0, own, key);
  return slot.host;
}

const HostSide& RowReader::Kept::of(Device device, std::size_t bytes) {
  if (!side_ || bytes > bytes_) side_.emplace(device, bytes_ = bytes);
  return *side_;
}

std::span<const float> RowReader::read(const Shape& shape, const Run& run) {
  Scratch scratch(ctx_);
  const BatchLayout layout(fields_, 1, positions_);
  const Tensor block = block_of(scratch, layout), out = scratch.tensor(shape, ctx_.exact);
  if (ctx_.planning()) {
    run(ctx_, layout.at(nullptr), out);
    return {};
  }
  Slot& slot = slots_[current_];
  const HostSide& sent = sent_.of(ctx_.device, layout.bytes());
  const HostSide& results = slot.results.of(ctx_.device, out.bytes());
  const Queue queue = ctx_.queue();
  std::copy_n(slot.block.data(), layout.bytes(), sent.of(block));
  sent.send(queue, block);
  run(ctx_, layout.at(block.data()), out);
  const std::byte* const found = results.fetch(queue, out);
  queue.synchronize();
  const auto count = static_cast<std::size_t>(out.count());
  if (ctx_.exact == Dtype::f32 && !shares_host_memory(ctx_.device))
    return {reinterpret_cast<const float*>(found), count};
  slot.converted.resize(count);
  kernels::with_float_type(ctx_.exact, [&](auto zero) {
    const auto* values = reinterpret_cast<const decltype(zero)*>(found);
    std::transform(values, values + out.count(), slot.converted.begin(), [](auto x) { return static_cast<float>(x); });
  });
  return slot.converted;
}

std::span<const float> RowReader::hidden() {
  const auto& encodes = required<Encodes>(model_, "give hidden rows");
  return read({1, positions_, encodes.width()},
              [&](Context& ctx, const Batch& batch, const Tensor& out) { encodes.encode(ctx, batch, out); });
}

std::span<const float> RowReader::scores() {
  const auto& predicts = required<Predicts>(model_, "predict");
  return read(scores_of(predicts, positions_),
              [&](Context& ctx, const Batch& batch, const Tensor& out) { predicts.predict(ctx, batch, out); });
}

}  // namespace longstride
