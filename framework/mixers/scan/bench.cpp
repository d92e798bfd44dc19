// The kernels of a scan by themselves: features and scan, without projections and what else is around them.
#include <fmt/format.h>

#include "framework/mixers/scan/mixer.h"
#include "framework/ops/basic.h"

namespace longstride {

// Nothing decays or is written over, so that no value grows; the time is the same.
std::vector<MixerBench> ScanMixer::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                         std::int64_t positions) const {
  const std::int64_t heads = config_.heads;
  MixerBench out;
  Operands in;
  in.mixed = scratch.tensor({batch, positions, channels()}, ctx.compute);
  in.q = slice_of(in.mixed, 0), in.k = slice_of(in.mixed, 1), in.v = slice_of(in.mixed, 2);
  const Scanned made = tensors(ctx, batch, positions, scratch, nullptr, true);
  const Tensor dout = scratch.like(made.o), dmixed = scratch.like(in.mixed);
  out.inputs = {in.mixed, dout};
  if (config_.scan.has_features()) {
    in.projection = scratch.tensor({1, rows_of_projection(), config_.key_size}, ctx.exact);
    out.inputs.push_back(in.projection);
  }
  if (config_.scan.decay == ScanDecay::head) in.own_decay = scratch.tensor({batch, positions, heads}, ctx.exact);
  if (config_.scan.decay == ScanDecay::channel)
    in.own_decay = scratch.tensor({batch, positions, heads, config_.key_size}, ctx.exact);
  if (delta()) in.beta = scratch.tensor({batch, positions, heads}, ctx.exact);
  for (const Tensor& t : {in.own_decay, in.beta})
    if (t.given()) out.zeros.push_back(t);
  in.decay = in.own_decay;
  out.name =
      fmt::format("{} ({}, {}, {}, {}/{})", kind(0), batch, heads, positions, key_rows_of_state(), config_.value_size);
  out.forward = [this, in, made](Context& run) {
    Scratch inner(run);
    Operands read = in;
    expand(run, Pace::training, read, inner);
    scan(run, read, made, Pace::training);
  };
  out.backward = [this, in, made, dout, dmixed](Context& run) {
    Scratch inner(run);
    Operands read = in;
    expand(run, Pace::training, read, inner);
    const ScanGradients d = gradient_tensors(read, dmixed, inner);
    scan_back(run, read, made, dout, d);
    backward_features(run, read, d);
  };
  const PairCost one = cost(positions);
  const auto bytes = static_cast<double>(in.mixed.bytes() + made.o.bytes()),
             states = static_cast<double>(made.chunk_states.bytes());
  out.forward_work = {bytes + states, static_cast<double>(batch) * one.forward_flops};
  out.backward_work = {2 * bytes + states, static_cast<double>(batch) * one.backward_flops};
  return {std::move(out)};
}

}  // namespace longstride
