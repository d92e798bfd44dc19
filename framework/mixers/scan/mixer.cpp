#include "framework/mixers/scan/mixer.h"

#include <cmath>

#include "framework/layers/sequence_exchange.h"
#include "framework/ops/basic.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/scale_heads/scale_heads.h"

namespace longstride {
namespace {

constexpr std::int64_t low_rank = 16;  // for the decay per channel (Yang et al. 2024)

// Initial numbers of heads, spread as the published ones are drawn: exp(rate) from 1 to 16, softplus(bias) from 0.001
// to 0.1 by its logarithm (Dao and Gu 2024).
std::vector<double> initial_rates(std::int64_t heads) {
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h)
    out.push_back(std::log(1 + 15 * (static_cast<double>(h) + 0.5) / static_cast<double>(heads)));
  return out;
}
std::vector<double> initial_biases(std::int64_t heads) {
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = 0.001 * std::pow(100.0, (static_cast<double>(h) + 0.5) / static_cast<double>(heads));
    out.push_back(step + std::log(-std::expm1(-step)));
  }
  return out;
}

AddedParameters declare_added(ParameterSet& parameters, const std::string& name, const ScanMixerConfig& c) {
  const ScanSettings& s = c.scan;
  const std::int64_t keys = c.heads * c.key_size, values = c.heads * c.value_size,
                     channels = 2 * c.key_heads * c.key_size + values;
  const auto add = [&](const char* own, const Shape& shape, const Init& init) {
    Parameter& p = parameters.add(name + own, shape, init);
    p.may_be_new = true;
    return &p;
  };
  const auto map = [&](std::optional<Linear>& to, const char* own, std::int64_t in, std::int64_t out) {
    to.emplace(parameters, name + own, in, out, c.deviation, false);
    parameters.all().back().may_be_new = true;
  };
  AddedParameters out;
  if (s.convolution > 0) {  // passes its input on
    std::vector<double> last(static_cast<std::size_t>(s.convolution), 0.0);
    last.back() = 1;
    out.convolution = add(".convolution.weight", {channels, s.convolution}, {0, 0, last});
    if (s.convolution_bias) out.convolution_bias = add(".convolution.bias", {channels}, {});
  }
  if (s.decay == ScanDecay::head) {
    map(out.decay, ".decay", c.width, c.heads);
    out.decay_bias = add(".decay_bias", {c.heads}, {0, 0, initial_biases(c.heads)});
    out.decay_rate = add(".decay_rate", {c.heads}, {0, 0, initial_rates(c.heads)});
  } else if (s.decay == ScanDecay::channel) {
    map(out.decay_low, ".decay_low", c.width, low_rank);
    map(out.decay, ".decay", low_rank, keys);
    out.decay_bias = add(".decay_bias", {keys}, {});
  }
  if (s.form == kernels::ScanForm::delta) map(out.beta, ".beta", c.width, c.heads);
  if (s.skip) out.skip = add(".skip", {c.heads}, {0, 1});
  if (s.gate == Switch::on) map(out.gate, ".gate", c.width, values);
  if (s.norm == ScanNorm::rms) out.norm = add(".norm.weight", {c.value_size}, {0, 1});
  if (s.norm == ScanNorm::gated_rms) out.norm = add(".norm.weight", {values}, {0, 1});
  return out;
}

}  // namespace

ScanMixer::ScanMixer(ParameterSet& parameters, StateSet& states, const std::string& name, const ScanMixerConfig& config)
    : config_(config),
      query_key_value_(parameters, name + ".query_key_value", config.width, {keys(), keys(), values()},
                       config.deviation, config.biased),
      added_(declare_added(parameters, name, config)),
      output_(parameters, name + ".output", values(), config.width, config.output_deviation, config.output_biased) {
  if (!config.scan.memory) return;
  if (config.scan.convolution > 0)
    rows_ = &states.add(name + ".convolution_rows", {config.scan.convolution - 1, channels()}, StateType::compute);
  if (config.scan.stabilised()) c_ = &states.add(name + ".stabiliser", {config.heads}, StateType::exact);
  sums_ = &states.add(name + ".sums", {config.heads, key_rows_of_state(), columns()}, StateType::exact);
}

ScanStates ScanMixer::states_of(const Context& ctx) const {
  ScanStates s;
  if (!config_.scan.memory) return s;
  if (rows_ != nullptr) s.rows = ctx.state.now(*rows_), s.next_rows = ctx.state.next(*rows_);
  if (c_ != nullptr) s.c = ctx.state.now(*c_), s.next_c = ctx.state.next(*c_);
  s.sums = ctx.state.now(*sums_), s.next_sums = ctx.state.next(*sums_);
  return s;
}

kernels::ScanForm ScanMixer::form(Pace pace) const {
  return keeps_c(pace) && !delta() ? kernels::ScanForm::gated : config_.scan.form;
}

Tensor ScanMixer::slice_of(const Tensor& mixed, int which) const {
  const std::int64_t ranks = channels() / mixed.size(-1), first = which * keys() / ranks;
  const std::int64_t heads = (which < 2 ? config_.key_heads : config_.heads) / ranks,
                     size = which < 2 ? config_.key_size : config_.value_size;
  return mixed.slice(-1, first, first + heads * size).split_last(heads, size);
}

void ScanMixer::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  forward_with(ctx, normed, out, tape, tape, {});
}

void ScanMixer::forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const {
  forward_with(ctx, normed, out, nullptr, &tape, {});
}

void ScanMixer::forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                              Tape& tape) const {
  forward_with(ctx, normed, out, &tape, nullptr,
               {kept.at(0), both() ? Tensor{} : kept.at(1), normalises() ? kept.back() : Tensor{}});
}

ScanMixer::Projected ScanMixer::project(Context& ctx, const Tensor& normed, Scratch& scratch, Tape* tape) const {
  Context plain = ctx.without_fp8();  // maps to few columns
  const int ranks = ctx.sequence_ranks();
  const auto map = [&](Context& own, const Linear& linear, const Tensor& x) {
    const Tensor y = scratch.tensor({x.size(0), x.size(1), linear.out()}, ctx.compute, tape);
    linear.apply(own, x, y);
    return y;
  };
  const auto map_to_heads = [&](Context& own, const Linear& linear, const Tensor& x,
                                const std::vector<std::int64_t>& groups) {
    const Tensor y = scratch.tensor({x.size(0), x.size(1) * ranks, linear.out() / ranks}, ctx.compute, tape);
    Scratch inner(ctx);
    const Tensor mine = positions_like(ctx, y, inner);
    linear.apply(own, x, mine);
    positions_to_heads(ctx, mine, groups, y);
    return y;
  };
  Projected out;
  out.qkv = map_to_heads(ctx, query_key_value_, normed, column_groups());
  if (added_.decay_low) out.decay_low = map(plain, *added_.decay_low, normed);
  if (added_.decay) {
    const Tensor& x = added_.decay_low ? out.decay_low : normed;
    out.decay = map_to_heads(plain, *added_.decay, x, {added_.decay->out()});
  }
  if (added_.beta) out.beta = map_to_heads(plain, *added_.beta, normed, {config_.heads});
  if (added_.gate) out.gate = map(ctx, *added_.gate, normed);
  return out;
}

kernels::ScanProblem ScanMixer::problem(Dtype compute, std::int64_t units, std::int64_t seq) const {
  return {form(Pace::training), kernels::Direction::past, compute, config_.scan.decay == ScanDecay::channel, units, seq,
          key_rows_of_state(),  config_.value_size};
}

ScanMixer::Scanned ScanMixer::tensors(Context& ctx, std::int64_t batch, std::int64_t seq, Scratch& scratch, Tape* tape,
                                      bool kept) const {
  const std::int64_t heads = config_.heads / ctx.sequence_ranks();
  Scanned out;
  out.o = scratch.tensor({batch, seq, heads * config_.value_size}, ctx.compute, tape);
  if (kept && !both())
    out.chunk_states =
        scratch.tensor({batch * heads, kernels::scan_states(ctx.device, problem(ctx.compute, batch * heads, seq)),
                        key_rows_of_state(), columns()},
                       ctx.exact, tape);
  if (normalises()) out.denominator = scratch.tensor({batch, heads, seq}, ctx.exact, tape);
  return out;
}

void ScanMixer::scan(Context& ctx, const Operands& in, const Scanned& out, Pace pace) const {
  const Tensor o = out.o.split_last(in.v.size(2), config_.value_size);
  ops::run(ctx, kernels::ScanArgs{.form = form(pace),
                                  .q = in.phi_q,
                                  .k = in.phi_k,
                                  .v = in.v,
                                  .o = o,
                                  .decay = in.decay,
                                  .beta = in.beta,
                                  .begin = ctx.documents.begin,
                                  .denominator = out.denominator,
                                  .first_state = in.states.sums,
                                  .last_state = in.states.next_sums,
                                  .chunk_states = out.chunk_states,
                                  .direction = config_.direction});
}

void ScanMixer::add_skip(Context& ctx, const Operands& in, const Tensor& o) const {
  if (added_.skip == nullptr) return;
  const Tensor by_head = o.split_last(in.v.size(2), config_.value_size);
  ops::run(ctx, kernels::ScaleHeadsArgs{slice_of(in.mixed, 2), own_part(ctx, added_.skip->master), by_head, by_head});
}

ScanMixer::ScanGradients ScanMixer::gradient_tensors(const Operands& read, const Tensor& dmixed,
                                                     Scratch& scratch) const {
  const bool own_rows = config_.scan.has_features() || shares_keys();
  const auto like = [&](const Tensor& x) { return x.given() ? scratch.like(x) : Tensor{}; };
  return {own_rows ? scratch.like(read.phi_q) : slice_of(dmixed, 0),
          own_rows ? scratch.like(read.phi_k) : slice_of(dmixed, 1),
          dmixed,
          read.own_decay.given() ? like(read.decay) : Tensor{},  // that of features cancels
          like(read.beta),
          like(read.step)};
}

void ScanMixer::scan_back(Context& ctx, const Operands& read, const Scanned& made, const Tensor& d_o,
                          const ScanGradients& to) const {
  ops::run(ctx, kernels::ScanBackwardArgs{.form = form(Pace::training),
                                          .q = read.phi_q,
                                          .k = read.phi_k,
                                          .v = read.v,
                                          .o = made.o.split_last(read.v.size(2), config_.value_size),
                                          .decay = read.decay,
                                          .beta = read.beta,
                                          .begin = ctx.documents.begin,
                                          .denominator = made.denominator,
                                          .chunk_states = made.chunk_states,
                                          .dout = d_o.split_last(read.v.size(2), config_.value_size),
                                          .dq = to.dphi_q,
                                          .dk = to.dphi_k,
                                          .dv = slice_of(to.dmixed, 2),
                                          .ddecay = to.decay,
                                          .dbeta = to.beta,
                                          .direction = config_.direction});
}

Tensor ScanMixer::finish(Context& ctx, const Tensor& o, const Tensor& gate, Scratch& scratch) const {
  if (!has_norm() && !has_gate()) return o;
  const Tensor y = scratch.like(o);
  ops::run(ctx, kernels::GatedNormArgs{.x = in_rows(o),
                                       .y = in_rows(y),
                                       .gain = has_norm() ? in_rows(added_.norm->master) : Tensor{},
                                       .gate = has_gate() ? in_rows(gate) : Tensor{},
                                       .gate_first = gate_first()});
  return y;
}

void ScanMixer::finish_back(Context& ctx, const Tensor& o, const Tensor& gate, const Tensor& d_o,
                            const Tensor& dgate) const {
  if (!has_norm() && !has_gate()) return;
  ops::run(ctx, kernels::GatedNormBackwardArgs{.dy = in_rows(d_o),
                                               .x = in_rows(o),
                                               .dx = in_rows(d_o),
                                               .gain = has_norm() ? in_rows(added_.norm->master) : Tensor{},
                                               .gate = has_gate() ? in_rows(gate) : Tensor{},
                                               .dgain = has_norm() ? in_rows(added_.norm->gradient) : Tensor{},
                                               .dgate = has_gate() ? in_rows(dgate) : Tensor{},
                                               .gate_first = gate_first()});
}

void ScanMixer::forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                             Scanned known) const {
  Scratch scratch(ctx);
  const Projected in = project(ctx, normed, scratch, tape);
  const Tensor drawn = projection(ctx, scratch, tape);
  if (!known.o.given()) {
    known = tensors(ctx, in.qkv.size(0), in.qkv.size(1), scratch, kept_on, kept_on != nullptr);
    Scratch inner(ctx);
    const Operands read = operands(ctx, in, drawn, states_of(ctx), Pace::training, 0, inner);
    scan(ctx, read, known, Pace::training);
    add_skip(ctx, read, known.o);
  }
  const Tensor o = positions_like(ctx, known.o, scratch, tape);
  heads_to_positions(ctx, known.o, {values()}, o);
  if (tape != nullptr)
    for (const Tensor& t : {normed, in.qkv, in.decay_low, in.decay, in.beta, in.gate, drawn, o}) tape->push(t);
  if (tape != nullptr || kept_on != nullptr) {
    Tape& on = tape != nullptr ? *tape : *kept_on;
    on.push(known.o);
    if (!both()) on.push(known.chunk_states);
    if (normalises()) on.push(known.denominator);
  }
  if (!out.given()) return;
  const Tensor y = finish(ctx, o, in.gate, scratch);
  const auto [to, residual] = out.place();
  output_.apply(ctx, y, to, residual);
}

void ScanMixer::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  Scanned made;
  if (normalises()) made.denominator = tape.pop();
  if (!both()) made.chunk_states = tape.pop();
  made.o = tape.pop();
  const Tensor o = tape.pop(), drawn = tape.pop();
  Projected in;
  in.gate = tape.pop(), in.beta = tape.pop(), in.decay = tape.pop(), in.decay_low = tape.pop(), in.qkv = tape.pop();
  const Tensor normed_input = tape.pop();
  Scratch scratch(ctx);
  const auto like = [&](const Tensor& x) { return x.given() ? scratch.like(x) : Tensor{}; };
  const Projected d{like(in.qkv), like(in.decay_low), like(in.decay), like(in.beta), like(in.gate)};
  const Tensor d_o = scratch.like(made.o);
  {
    Scratch inner(ctx);
    const Tensor mine = positions_like(ctx, d_o, inner);
    output_.gradients_but_bias(ctx, finish(ctx, o, in.gate, inner), dout, mine);
    finish_back(ctx, o, in.gate, mine, d.gate);
    positions_to_heads(ctx, mine, {values()}, d_o);
  }
  const Operands read = operands(ctx, in, drawn, states_of(ctx), Pace::training, 0, scratch);
  const Tensor dmixed = added_.convolution != nullptr ? scratch.like(d.qkv) : d.qkv;
  const ScanGradients g = gradient_tensors(read, dmixed, scratch);
  scan_back(ctx, read, made, d_o, g);
  backward_values(ctx, read, d_o, g);
  backward_operands(ctx, in, read, g, d);
  backward_projections(ctx, normed_input, in, d, dnormed);
}

}  // namespace longstride
