// Turns a scan into launches.
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "kernels/attention/delta.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/scan/scan_call.h"
#include "kernels/scan/scan_scratch.h"

namespace longstride::kernels::cuda {
namespace {

using namespace scanning;

bool all_on_16_bytes(std::initializer_list<Tensor> views) {
  return std::all_of(views.begin(), views.end(), [](const Tensor& x) { return !x.given() || rows_on_16_bytes(x); });
}

// The part that both passes have.
template <class Args>
ScanCall call_of(const Args& args, const ScanScratch& scratch) {
  ScanCall call;
  call.q = HeadMatrix(args.q);
  call.k = HeadMatrix(args.k);
  call.v = HeadMatrix(args.v);
  call.o = HeadMatrix(args.o);
  call.decay = args.decay.template as<const float>();
  call.beta = args.beta.template as<const float>();
  call.begin = args.begin.template as<const std::int32_t>();
  call.denominator = args.denominator.template as<float>();
  call.n = static_cast<std::int32_t>(args.q.size(1));
  call.heads = static_cast<std::int32_t>(args.q.size(2));
  call.units = static_cast<std::int32_t>(args.q.size(0)) * call.heads;
  const ScanProblem problem = problem_of(args);
  call.chunks = static_cast<std::int32_t>(scan_states(Device::cuda, problem));
  call.run_chunks = static_cast<std::int32_t>(scan_run(Device::cuda, problem) / walk_chunk);
  call.key_size = static_cast<std::int32_t>(args.q.size(3));
  call.value_size = static_cast<std::int32_t>(args.v.size(3));
  call.normalised = args.denominator.given();
  call.columns = call.value_size + (call.normalised ? 1 : 0);
  call.channels = args.decay.rank() == 4;
  call.both = args.direction == Direction::both;
  call.scaled = call.decay != nullptr || call.begin != nullptr;
  const auto floats = [&](std::int64_t at) {
    return reinterpret_cast<float*>(args.scratch.template as<std::byte>() + at);
  };
  call.whole = floats(scratch.whole);
  call.states.before = args.chunk_states.given() ? args.chunk_states.template as<float>() : floats(scratch.before);
  call.states.behind = floats(scratch.behind);
  call.gradients = {floats(scratch.gradients_before), floats(scratch.gradients_behind)};
  call.kept = args.scratch.template as<char>() + scratch.kept;
  call.inverses = args.scratch.template as<char>() + scratch.inverses;
  call.transitions = floats(scratch.transitions);
  call.strong = reinterpret_cast<std::int32_t*>(floats(scratch.strong));
  return call;
}

// S before every chunk, and in both directions behind it.
template <class T>
void set_states(const ScanCall& call, const float* first, float* last, const Launch& launch) {
  sum_chunks<T>(call, Sums::keys_and_values, true, call.states.before, launch);
  carry(call, false, call.states.before, first, last, launch);
  if (!call.both) return;
  sum_chunks<T>(call, Sums::keys_and_values, false, call.states.behind, launch);
  carry(call, true, call.states.behind, nullptr, nullptr, launch);
}
// G behind every chunk, and in both directions before it.
template <class T>
void set_gradients(const ScanCall& call, const float* last, float* first, const Launch& launch) {
  sum_chunks<T>(call, Sums::queries_and_gradients, false, call.gradients.behind, launch);
  carry(call, true, call.gradients.behind, last, first, launch);
  if (!call.both) return;
  sum_chunks<T>(call, Sums::queries_and_gradients, true, call.gradients.before, launch);
  carry(call, false, call.gradients.before, nullptr, nullptr, launch);
}

// Heads of the kernels that are written for Hopper.
template <class T>
bool is_wide(const ScanCall& call) {
  return std::is_same_v<T, __nv_bfloat16> && call.key_size > 128 && call.value_size <= 64 && !call.channels &&
         call.beta == nullptr && call.keys_aligned && call.values_aligned && call.q.has_strides() &&
         call.k.has_strides() && call.v.has_strides() && (call.dout.data == nullptr || call.dout.has_strides()) &&
         is_hopper();
}

template <class T>
void sum_each_run(const ScanCall& call, bool wide, bool backwards, const Launch& launch) {
  if (wide) return sum_wide_runs(call, backwards, launch);
  call.channels ? sum_channel_runs<T>(call, backwards, launch) : sum_runs<T>(call, backwards, launch);
}

// Both passes by walks.
template <class T>
void walk(const ScanCall& call, const float* first, float* last, const Launch& launch) {
  if (call.beta != nullptr) {
    delta_inverses<T>(call, launch);
    delta_runs<T>(call, false, first, last, launch);
    return delta_outputs_of_runs<T>(call, launch);
  }
  const bool wide = is_wide<T>(call);
  sum_each_run<T>(call, wide, false, launch);
  carry(call, false, call.states.before, first, last, launch);
  if (wide) return outputs_of_wide_runs(call, launch);
  if (!call.channels) return outputs_of_runs<T>(call, launch);
  outputs_of_weak_runs<T>(call, launch);
  outputs_of_channel_runs<T>(call, launch);
}
template <class T>
void walk_backward(const ScanCall& call, const float* last, float* first, const Launch& launch) {
  if (call.beta != nullptr) {
    delta_inverses<T>(call, launch);
    delta_runs<T>(call, true, last, first, launch);
    return delta_gradients_of_runs<T>(call, launch);
  }
  const bool wide = is_wide<T>(call);
  sum_each_run<T>(call, wide, true, launch);
  carry(call, true, call.gradients.behind, last, first, launch);
  if (wide && call.ddecay == nullptr) return gradients_of_wide_runs(call, launch);
  if (!call.channels) return gradients_of_runs<T>(call, launch);
  gradients_of_weak_runs<T>(call, launch);
  gradients_of_channel_runs<T>(call, launch);
}

template <class Args>
DeltaPass delta_pass(const Args& args, const ScanScratch& scratch, bool backward) {
  auto* const base = args.scratch.template as<std::byte>();
  DeltaPass pass{.backward = backward,
                 .fixed = reinterpret_cast<float*>(base + (backward ? scratch.du : scratch.errors)),
                 .moved = base + scratch.moved,
                 .added = base + scratch.added};
  pass.key_width = static_cast<std::int32_t>(args.k.size(3) + 15) / 16 * 16;
  pass.value_width = static_cast<std::int32_t>(args.v.size(3) + 15) / 16 * 16;
  return pass;
}
// The rows that a pass has solved.
HeadMatrix solved(const ScanCall& call, const DeltaPass& pass) {
  HeadMatrix rows;
  rows.data = pass.fixed;
  rows.row = pass.value_width;
  rows.head = call.chunks * scan_chunk * rows.row;
  rows.batch = call.heads * rows.head;
  return rows;
}

template <class T>
void delta_backward(const ScanBackwardArgs& args, const ScanScratch& scratch, ScanCall call, const Launch& launch) {
  const DeltaPass forward = delta_pass(args, scratch, false), backward = delta_pass(args, scratch, true);
  solve_chunks<T>(call, forward, launch);
  delta_states<T>(call, forward, true, call.states.before, nullptr, nullptr, launch);
  sum_chunks<T>(call, Sums::queries_and_gradients, false, call.gradients.behind, launch);
  solve_chunks<T>(call, backward, launch);
  delta_states<T>(call, backward, false, call.gradients.behind, args.dlast_state.as<const float>(),
                  args.dfirst_state.as<float>(), launch);
  call.v = solved(call, forward);
  call.e = solved(call, backward);
  gradients<T>(call, launch);
  delta_rows<T>(call, launch);
}

}  // namespace

void scan(const ScanArgs& args, const Launch& launch) {
  const ScanScratch scratch(args);
  ScanCall call = call_of(args, scratch);
  call.keys_aligned = all_on_16_bytes({args.q, args.k});
  call.values_aligned = all_on_16_bytes({args.v, args.o});
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* const first = args.first_state.as<const float>();
    auto* const last = args.last_state.as<float>();
    if constexpr (sizeof(T) == 2)
      if (scratch.walks) return walk<T>(call, first, last, launch);
    if (args.form == ScanForm::delta) {
      const DeltaPass pass = delta_pass(args, scratch, false);
      solve_chunks<T>(call, pass, launch);
      delta_states<T>(call, pass, false, call.states.before, first, last, launch);
      call.v = solved(call, pass);
    } else {
      set_states<T>(call, first, last, launch);
    }
    outputs<T>(call, launch);
  });
}

void scan_backward(const ScanBackwardArgs& args, const Launch& launch) {
  const ScanScratch scratch(args);
  ScanCall call = call_of(args, scratch);
  call.dout = HeadMatrix(args.dout);
  call.dq = HeadMatrix(args.dq);
  call.dk = HeadMatrix(args.dk);
  call.dv = HeadMatrix(args.dv);
  call.ddecay = args.ddecay.as<float>();
  call.dbeta = args.dbeta.as<float>();
  call.keys_aligned = all_on_16_bytes({args.q, args.k, args.dq, args.dk});
  call.values_aligned = all_on_16_bytes({args.v, args.o, args.dout, args.dv});
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (call.normalised) {
      auto* const delta = reinterpret_cast<float*>(args.scratch.as<std::byte>() + scratch.delta);
      attention_delta(args.o, args.dout, delta, launch);
      call.delta = delta;
    }
    const auto* const last = args.dlast_state.as<const float>();
    auto* const first = args.dfirst_state.as<float>();
    if constexpr (sizeof(T) == 2)
      if (scratch.walks) return walk_backward<T>(call, last, first, launch);
    if (args.form == ScanForm::delta) return delta_backward<T>(args, scratch, call, launch);
    if (call.both) set_states<T>(call, nullptr, nullptr, launch);
    set_gradients<T>(call, last, first, launch);
    gradients<T>(call, launch);
  });
}

}  // namespace longstride::kernels::cuda
