#include "framework/train/checkpoint/state_tensors.h"

#include <algorithm>
#include <charconv>

#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/exact_conversion.h"
#include "framework/core/files/safetensors.h"

namespace longstride {
namespace {

bool floating(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16; }

// As train.precision has it.
const char* precision_of(Dtype dtype) { return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f16 ? "fp16" : "fp32"; }

// Versions up to 3 have every state in F32.
void read_rows(const SafetensorsReader& reader, const TensorEntry& entry, const Tensor& rows) {
  if (entry.dtype == rows.dtype() || !floating(entry.dtype) || !floating(rows.dtype()))
    return reader.read(entry.name, rows);
  const Block memory(Device::cpu, Tensor(nullptr, entry.dtype, entry.shape).bytes());
  const Tensor stored(memory.data(), entry.dtype, entry.shape);
  reader.read(entry.name, stored);
  if (!convert_exactly(stored, rows))
    throw user_error(
        "{}: tensor '{}' has values of {} that {} would round; continue the run with train.precision: {}, or begin "
        "another one with its weights (--from)",
        reader.path(), entry.name, precision_of(entry.dtype), precision_of(rows.dtype()), precision_of(entry.dtype));
}

}  // namespace

std::optional<RangeName> parse_range_name(const std::string& name) {
  RangeName parsed{name};
  const std::size_t open = name.rfind('[');
  if (!name.ends_with("]") || open == std::string::npos) return parsed;
  const char *at = name.data() + open + 1, *last = name.data() + name.size() - 1;
  const auto colon = std::from_chars(at, last, parsed.begin);
  if (colon.ec != std::errc() || colon.ptr == last || *colon.ptr != ':') return std::nullopt;
  const auto stop = std::from_chars(colon.ptr + 1, last, parsed.end);
  if (stop.ec != std::errc() || stop.ptr != last || parsed.end < 0) return std::nullopt;
  parsed.name.resize(open);
  return parsed;
}

bool holds_16_bits(const std::string& path) {
  const SafetensorsReader reader(path);
  return std::any_of(reader.entries().begin(), reader.entries().end(),
                     [](const TensorEntry& e) { return kernels::bytes_of(e.dtype) == 2; });
}

void read_states(const std::string& directory, const std::vector<std::string>& shards, const State& state,
                 const Tensor& rows) {
  std::int64_t read = 0;
  for (const std::string& shard : shards) {
    const SafetensorsReader reader(directory + "/" + shard);
    for (const TensorEntry& entry : reader.entries()) {
      const std::optional<RangeName> range = parse_range_name(entry.name);
      if (!range || range->name != state.name || range->end < 0) continue;
      const bool fits = 0 <= range->begin && range->begin < range->end && range->end <= rows.size(0);
      if (!fits || !(rows.slice(0, range->begin, range->end).shape() == entry.shape))
        throw user_error(
            "{}: tensor '{}' is {}, but the model remembers {} of {} rows; use the recipe that the run was started "
            "with",
            reader.path(), entry.name, entry.shape.text(), state.shape.text(), rows.size(0));
      read_rows(reader, entry, rows.slice(0, range->begin, range->end));
      read += range->end - range->begin;
    }
  }
  if (read != rows.size(0))
    throw user_error("{}: holds '{}' of {} of the {} rows; use the recipe that the run was started with", directory,
                     state.name, read, rows.size(0));
}

}  // namespace longstride
