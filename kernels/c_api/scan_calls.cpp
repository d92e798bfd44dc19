// The functions of scan.h.
#include <limits>

#include "kernels/base/check.h"
#include "kernels/c_api/run.h"
#include "kernels/c_api/scan_settings.h"

struct longstride_scan_plan {
  longstride::kernels::c_api::ScanSettings settings;
};

namespace longstride::kernels::c_api {
namespace {

// Shapes and type of what a call gives besides rows.
struct ScanArrays {
  const ScanSettings& s;
  Dtype exact = exact_type(s.rows.device, s.rows.dtype);
  std::int64_t columns = s.rows.value_size + (s.normalised ? 1 : 0);
  Shape beta = {s.rows.batch, s.rows.n, s.rows.heads};
  Shape decay =
      s.decay == LONGSTRIDE_DECAY_PER_CHANNEL ? Shape{s.rows.batch, s.rows.n, s.rows.heads, s.rows.key_size} : beta;
  Shape state = {s.rows.batch, s.rows.heads, s.rows.key_size, columns};
  Shape denominator = {s.rows.batch, s.rows.heads, s.rows.n};
  Shape chunk_states = {
      s.rows.batch * s.rows.heads,
      scan_states(s.rows.device, {s.form, s.direction, s.rows.dtype, s.decay == LONGSTRIDE_DECAY_PER_CHANNEL,
                                  s.rows.batch* s.rows.heads, s.rows.n, s.rows.key_size, s.rows.value_size}),
      s.rows.key_size, columns};
};

// Forward keeps states for backward, and denominators behind them.
struct Kept {
  Tensor denominator, chunk_states;
  std::size_t bytes = 0;

  Kept(const ScanSettings& s, const void* memory) {
    const ScanArrays arrays{s};
    const auto take = [&](bool given, const Shape& shape) {
      const auto* at = static_cast<const std::byte*>(memory);
      const Tensor t = array_of(given, at == nullptr ? nullptr : at + bytes, arrays.exact, shape);
      bytes += t.bytes();
      return t;
    };
    chunk_states = take(!s.both() && !s.forward_only, arrays.chunk_states);
    denominator = take(s.normalised && !s.forward_only, arrays.denominator);
  }
};

template <class Args>
Args inputs_of(const ScanSettings& s, const longstride_scan_inputs& in) {
  const ScanArrays arrays{s};
  Args args{};
  args.form = s.form;
  args.direction = s.direction;
  args.q = view_of(s.rows, in.q, s.rows.key_size);
  args.k = view_of(s.rows, in.k, s.rows.key_size);
  args.v = view_of(s.rows, in.v, s.rows.value_size);
  args.decay = array_of(s.decays(), in.decay, arrays.exact, arrays.decay);
  args.beta = array_of(s.form == ScanForm::delta, in.beta, arrays.exact, arrays.beta);
  args.begin = array_of(s.groups, in.begin, Dtype::i32, {s.rows.batch, 1, s.rows.n});
  return args;
}

template <class Args, class Call>
Args args_of(const ScanSettings& s, const Call& call, bool planning) {
  const ScanArrays arrays{s};
  const auto state = [&](const void* data) {
    return array_of(!s.both() && (planning || data != nullptr), data, arrays.exact, arrays.state);
  };
  const Kept kept(s, call.kept);
  auto args = inputs_of<Args>(s, call.inputs);
  args.o = view_of(s.rows, call.o, s.rows.value_size);
  args.denominator = array_of(s.normalised, kept.denominator.data(), arrays.exact, arrays.denominator);
  args.chunk_states = kept.chunk_states;
  if constexpr (requires { call.dout; }) {
    args.dout = view_of(s.rows, call.dout, s.rows.value_size);
    args.dq = view_of(s.rows, call.dq, s.rows.key_size);
    args.dk = view_of(s.rows, call.dk, s.rows.key_size);
    args.dv = view_of(s.rows, call.dv, s.rows.value_size);
    args.ddecay = array_of(args.decay.given(), call.ddecay, arrays.exact, arrays.decay);
    args.dbeta = array_of(args.beta.given(), call.dbeta, arrays.exact, arrays.beta);
    args.dlast_state = state(call.dlast_state);
    args.dfirst_state = state(call.dfirst_state);
  } else {
    args.first_state = state(call.first_state);
    args.last_state = state(call.last_state);
  }
  return args;
}

void check_inputs(const ScanSettings& s, const longstride_scan_inputs& in) {
  check_input(s.rows, in.q, "q");
  check_input(s.rows, in.k, "k");
  check_input(s.rows, in.v, "v");
  if (s.rows.batch == 0) return;  // arrays have no elements
  const ScanArrays arrays{s};
  const std::size_t bytes = bytes_of(arrays.exact);
  check_array(in.decay, bytes, !s.decays(), "decay");
  check_array(in.beta, bytes, s.form != ScanForm::delta, "beta");
  check_array(in.begin, sizeof(std::int32_t), !s.groups, "begin");
  if (s.rows.device != Device::cpu) return;
  const auto args = inputs_of<ScanArgs>(s, in);
  if (s.decays())
    check_numbers(args.decay, -std::numeric_limits<double>::infinity(), 0, "decay", "a logarithm of at most 0");
  if (args.beta.given()) check_numbers(args.beta, 0, 2, "beta", "from 0 to 2");
  if (s.groups) check_begin(s.rows, in.begin);
}

void check_kept(const ScanSettings& s, const void* kept) {
  if (Kept(s, nullptr).bytes == 0) return;
  check_array(kept, sizeof(float), false, "kept");
  check_lines(kept, "kept");
}

void check_call(const ScanSettings& s, const longstride_scan_forward_call& call) {
  check_inputs(s, call.inputs);
  check_output(s.rows, call.o, s.rows.value_size, "o");
  const std::size_t bytes = bytes_of(ScanArrays{s}.exact);
  check_optional(call.first_state, bytes, s.both(), "first_state");
  check_optional(call.last_state, bytes, s.both(), "last_state");
  check_kept(s, call.kept);
}

void check_call(const ScanSettings& s, const longstride_scan_backward_call& call) {
  if (s.forward_only) throw Mistake("forward_only of the plan is 1, but must be 0 for backward");
  check_inputs(s, call.inputs);
  if (s.normalised) check_input(s.rows, call.o, "o");
  check_input(s.rows, call.dout, "dout");
  check_output(s.rows, call.dq, s.rows.key_size, "dq");
  check_output(s.rows, call.dk, s.rows.key_size, "dk");
  check_output(s.rows, call.dv, s.rows.value_size, "dv");
  check_kept(s, call.kept);
  const std::size_t bytes = bytes_of(ScanArrays{s}.exact);
  check_optional(call.dlast_state, bytes, s.both(), "dlast_state");
  check_optional(call.dfirst_state, bytes, s.both(), "dfirst_state");
  if (s.rows.batch == 0) return;
  check_array(call.ddecay, bytes, !s.decays(), "ddecay");
  check_array(call.dbeta, bytes, s.form != ScanForm::delta, "dbeta");
}

// Settings that are right are refused only where the device's kernels lack them.
void check_kernels(const ScanSettings& s) {
  if (s.rows.batch == 0) return;
  try {
    args_of<ScanArgs>(s, longstride_scan_forward_call{}, true).check(s.rows.device);
    if (!s.forward_only) args_of<ScanBackwardArgs>(s, longstride_scan_backward_call{}, true).check(s.rows.device);
  } catch (const InternalError& error) {
    throw Unsupported(error.what());
  }
}

}  // namespace

template <>
struct Interface<longstride_scan_plan> {
  using Plan = longstride_scan_plan;
  static constexpr const char *create = "longstride_scan_create", *memory = "longstride_scan_memory";
  using ForwardCall = longstride_scan_forward_call;
  using BackwardCall = longstride_scan_backward_call;
  using Memory = longstride_scan_bytes;
  using Forward = ScanArgs;
  using Backward = ScanBackwardArgs;

  static Plan plan_of(const longstride_scan_config* config) {
    const Plan plan{scan_settings_of(config)};
    check_kernels(plan.settings);
    return plan;
  }
  static const Settings& settings(const Plan& plan) { return plan.settings.rows; }
  static std::size_t kept_bytes(const Plan& plan) { return Kept(plan.settings, nullptr).bytes; }
  static bool has_backward(const Plan& plan) { return !plan.settings.forward_only; }
  template <class Call>
  static void check(const Plan& plan, const Call& call) {
    check_call(plan.settings, call);
  }
  template <class Args, class Call>
  static Args args(const Plan& plan, const Call& call, bool planning) {
    return args_of<Args>(plan.settings, call, planning);
  }
  // For denominators that are not kept.
  template <class Call, class Args>
  static std::size_t more_scratch(const Plan& plan, const Call&, const Args& args) {
    return plan.settings.forward_only ? in_lines(args.denominator.bytes()) : 0;
  }
  template <class Args>
  static void prepare(const Plan&, Args& args, std::byte* more, const Launch&) {
    args.denominator = Tensor(more, args.denominator.dtype(), args.denominator.shape());
  }
};

}  // namespace longstride::kernels::c_api

namespace c_api = longstride::kernels::c_api;

extern "C" {

longstride_status longstride_scan_create(const longstride_scan_config* config, longstride_scan_plan** plan) {
  return c_api::status_of([&] { c_api::create(config, plan); });
}
void longstride_scan_destroy(longstride_scan_plan* plan) { delete plan; }
longstride_status longstride_scan_memory(const longstride_scan_plan* plan, longstride_scan_bytes* memory) {
  return c_api::status_of([&] { c_api::memory(plan, memory); });
}
longstride_status longstride_scan_forward(const longstride_scan_plan* plan, const longstride_scan_forward_call* call) {
  return c_api::status_of([&] { c_api::run(plan, call); });
}
longstride_status longstride_scan_backward(const longstride_scan_plan* plan,
                                           const longstride_scan_backward_call* call) {
  return c_api::status_of([&] { c_api::run(plan, call); });
}
}
