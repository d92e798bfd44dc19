#include "framework/train/sampler.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/train/host_memory.h"
#include "kernels/base/philox.h"

namespace longstride {
namespace {

struct Buffers {
  Tensor previous, logits;
};

Buffers buffers_of(Scratch& scratch, const Model& model, const SampleConfig& config, Dtype dtype) {
  return {scratch.tensor({config.count, 1}, Dtype::u8), scratch.tensor({config.count, model.vocabulary()}, dtype)};
}

}  // namespace

SampleMemory sample_memory(const Model& model, const SampleConfig& config, Dtype dtype) {
  Arena counting;
  Context ctx;
  ctx.arena = &counting;
  ctx.compute = ctx.residual = dtype;
  const auto state = model.begin_decoding(ctx, config.count, config.length);
  Scratch scratch(ctx);
  const Buffers b = buffers_of(scratch, model, config, dtype);
  model.decode(ctx, *state, 0, b.previous, b.logits);
  return {state->bytes(), static_cast<std::int64_t>(counting.high_water())};
}

std::uint8_t draw(const double* logits, std::int64_t vocabulary, double temperature, double uniform) {
  const double* best = std::max_element(logits, logits + vocabulary);
  if (temperature <= 0) return static_cast<std::uint8_t>(best - logits);
  double total = 0;
  for (std::int64_t v = 0; v < vocabulary; ++v) total += std::exp((logits[v] - *best) / temperature);
  double left = uniform * total;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    left -= std::exp((logits[v] - *best) / temperature);
    if (left < 0) return static_cast<std::uint8_t>(v);
  }
  return static_cast<std::uint8_t>(best - logits);  // only rounding leaves anything over
}

std::vector<std::vector<std::uint8_t>> sample(const Model& model, const SampleConfig& config,
                                              const std::function<void(std::int64_t, std::int64_t)>& progress,
                                              Dtype dtype) {
  LONGSTRIDE_CHECK(config.length <= model.context() && static_cast<std::int64_t>(config.prompt.size()) <= config.length,
                   "{} bytes after a prompt of {} for a context of {}", config.length, config.prompt.size(),
                   model.context());
  const HostMemory memory(static_cast<std::size_t>(sample_memory(model, config, dtype).total));
  Arena arena(memory.data(), memory.bytes());
  Context ctx;
  ctx.arena = &arena;
  ctx.compute = ctx.residual = dtype;
  const auto state = model.begin_decoding(ctx, config.count, config.length);
  Scratch scratch(ctx);
  const Buffers b = buffers_of(scratch, model, config, dtype);

  std::vector<std::vector<std::uint8_t>> out(static_cast<std::size_t>(config.count),
                                             std::vector<std::uint8_t>(static_cast<std::size_t>(config.length)));
  std::vector<double> logits(static_cast<std::size_t>(model.vocabulary()));
  std::fill_n(b.previous.as<std::uint8_t>(), config.count, std::uint8_t{0});
  for (std::int64_t position = 0; position < config.length; ++position) {
    const bool prompted = position < static_cast<std::int64_t>(config.prompt.size());
    model.decode(ctx, *state, position, b.previous, b.logits);
    for (std::int64_t s = 0; s < config.count; ++s) {
      std::uint8_t byte = 0;
      if (prompted) {
        byte = config.prompt[static_cast<std::size_t>(position)];
      } else {
        kernels::with_float_type(dtype, [&](auto zero) {
          std::copy_n(b.logits.as<decltype(zero)>() + s * model.vocabulary(), model.vocabulary(), logits.data());
        });
        const kernels::Philox4 r =
            kernels::philox(config.seed, static_cast<std::uint64_t>(s), static_cast<std::uint32_t>(position),
                            kernels::domain_of(kernels::Purpose::sample, 0));
        byte = draw(logits.data(), model.vocabulary(), config.temperature, kernels::uniform_of(r.word[0]));
      }
      out[static_cast<std::size_t>(s)][static_cast<std::size_t>(position)] = byte;
      b.previous.as<std::uint8_t>()[s] = byte;
    }
    if (progress) progress(position + 1, config.length);
  }
  return out;
}

}  // namespace longstride
