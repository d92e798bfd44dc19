// The kernels of a scan by themselves: features and scan, without projections.
#include <fmt/format.h>

#include "framework/mixers/scan/mixer.h"
#include "framework/ops/basic.h"

namespace longstride {

// The decay and beta are those of inputs that are 0.
std::vector<MixerBench> ScanMixer::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                         std::int64_t positions) const {
  const std::int64_t heads = config_.heads;
  Projected in;
  in.qkv = scratch.tensor({batch, positions, channels()}, ctx.compute);
  MixerBench out;
  out.inputs = {in.qkv};
  const auto zeros = [&](std::int64_t width) {
    out.zeros.push_back(scratch.tensor({batch, positions, width}, ctx.compute));
    return out.zeros.back();
  };
  if (added_.decay) in.decay = zeros(added_.decay->out());
  if (added_.beta) in.beta = zeros(heads);
  const Scanned made = tensors(ctx, batch, positions, scratch, nullptr, true);
  const Tensor dout = scratch.like(made.o), dmixed = scratch.like(in.qkv);
  out.inputs.push_back(dout);
  out.name =
      fmt::format("{} ({}, {}, {}, {}/{})", kind(0), batch, heads, positions, key_rows_of_state(), config_.value_size);
  out.forward = [this, in, made](Context& run) {
    Scratch inner(run);
    scan(run, operands(run, in, {}, Pace::training, 0, inner), made, Pace::training);
  };
  out.backward = [this, in, made, dout, dmixed](Context& run) {
    Scratch inner(run);
    const Operands read = operands(run, in, {}, Pace::training, 0, inner);
    scan_back(run, read, made, dout, gradient_tensors(read, dmixed, inner));
  };
  const PairCost one = cost(positions);
  const auto bytes = static_cast<double>(in.qkv.bytes() + made.o.bytes()),
             states = static_cast<double>(made.chunk_states.bytes());
  out.forward_work = {bytes + states, static_cast<double>(batch) * one.forward_flops};
  out.backward_work = {2 * bytes + states, static_cast<double>(batch) * one.backward_flops};
  return {std::move(out)};
}

}  // namespace longstride
