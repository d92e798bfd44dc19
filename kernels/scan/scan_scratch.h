// The scan's scratch on a GPU: states that the caller does not keep, and numbers per chunk and row.
#pragma once
#include "kernels/scan/choice.h"
#include "kernels/scan/scan_call.h"

namespace longstride::kernels::cuda {

struct ScanScratch {
  // Offsets in bytes; the pieces that a call does not need have no bytes.
  std::int64_t whole, before, behind, gradients_before, gradients_behind, delta, errors, du, moved, added, kept,
      inverses, transitions, strong;
  bool walks;
  std::int64_t bytes = 0;

  explicit ScanScratch(const ScanArgs& args) : ScanScratch(args, false) {}
  explicit ScanScratch(const ScanBackwardArgs& args) : ScanScratch(args, true) {}

  Tensor tensor() const { return {nullptr, Dtype::u8, {bytes}}; }

 private:
  template <class Args>
  ScanScratch(const Args& args, bool backward) {
    const bool both = args.direction == Direction::both;
    const ScanProblem problem = problem_of(args);
    const std::int64_t units = problem.units, n = problem.n, run = scan_run(Device::cuda, problem),
                       chunks = units * scan_states(Device::cuda, problem),
                       states = chunks * args.q.size(3) * (args.v.size(3) + (args.denominator.given() ? 1 : 0));
    const auto floats = [&](bool needed, std::int64_t count) { return take(needed ? count * 4 : 0); };
    walks = takes_walks(Device::cuda, problem);
    const bool delta_rule = args.form == ScanForm::delta, solves = delta_rule && !walks;
    whole = floats(true, chunks * (args.decay.rank() == 4 ? args.q.size(3) : 1));
    before = floats(!args.chunk_states.given(), states);
    behind = floats(both, states);
    gradients_before = floats(backward && both, states);
    gradients_behind = floats(backward, states);
    delta = floats(backward && args.denominator.given(), units * n);
    const auto chunk_rows = [&](bool needed, const Tensor& x, Dtype type) {
      const std::int64_t width = (x.size(3) + 15) / 16 * 16;
      return take(needed ? chunks * scan_chunk * width * static_cast<std::int64_t>(bytes_of(type)) : 0);
    };
    errors = chunk_rows(solves, args.v, Dtype::f32);
    du = chunk_rows(solves && backward, args.v, Dtype::f32);
    moved = chunk_rows(solves, args.k, args.k.dtype());
    added = chunk_rows(solves, args.k, args.k.dtype());
    kept = take(walks && backward ? kept_bytes(problem, run) : 0);
    inverses = take(delta_rule && walks ? units * scan_chunks(n) * scan_chunk * scanning::walk_chunk * 2 : 0);
    strong = take(walks && args.decay.rank() == 4 && !delta_rule ? chunks * 4 : 0);
    transitions = floats(delta_rule && walks, chunks * problem.key_size * problem.key_size);
  }
  // A run's states of every block that runs at once.
  static std::int64_t kept_bytes(const ScanProblem& p, std::int64_t run) {
    const auto padded = [](std::int64_t size) { return size <= 64 ? 64 : size <= 128 ? 128 : 256; };
    return walk_blocks(p.key_size, p.value_size, p.form != ScanForm::delta && !p.channels) *
           (run / scanning::walk_chunk) *
           (scanning::walk_state_bytes(padded(p.key_size), padded(p.value_size)) +
            (p.form == ScanForm::delta ? 2 * scanning::walk_chunk * padded(p.value_size) : 0));
  }
  std::int64_t take(std::int64_t count) {
    const std::int64_t at = bytes;
    bytes += (count + 255) / 256 * 256;
    return at;
  }
};

}  // namespace longstride::kernels::cuda
