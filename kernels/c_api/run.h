// The functions of all headers make plans, tell memory and run calls in these ways. What differs is in
// Interface<Plan>, which has
//   create, memory                      names of functions, for messages
//   ForwardCall, BackwardCall, Memory   structs of the header
//   Forward, Backward                   the kernels' arguments
//   plan_of(config)                     checked
//   settings(plan), kept_bytes(plan)    Settings; bytes from forward to backward
//   has_backward(plan)
//   check(plan, call)                   all but scratch
//   args<Args>(plan, call, planning)    planning: without memory, but with all that calls may leave out
//   more_scratch(plan, call, args)      bytes, besides the kernel's own
//   prepare(plan, args, more, launch)   with memory for these; called if there are any
#pragma once
#include <cstddef>
#include <type_traits>

#include "kernels/c_api/mistakes.h"
#include "kernels/c_api/views.h"

namespace longstride::kernels::c_api {

template <class Plan>
struct Interface;

constexpr std::size_t in_lines(std::size_t bytes) { return (bytes + scratch_line - 1) / scratch_line * scratch_line; }

// The kernel's scratch and, on lines behind it, more.
struct ScratchBytes {
  std::size_t kernel = 0, more = 0;

  std::size_t all() const { return more == 0 ? kernel : in_lines(kernel) + more; }
};

template <class Plan, class Call, class Args>
ScratchBytes scratch_of(const Plan& plan, const Call& call, const Args& args) {
  using I = Interface<Plan>;
  return {args.scratch_on(I::settings(plan).device).bytes(), I::more_scratch(plan, call, args)};
}

template <class Config, class Plan>
void create(const Config* config, Plan** plan) {
  if (plan == nullptr) throw Mistake("plan is null, but must be where the plan is to be kept");
  *plan = nullptr;
  *plan = new Plan(Interface<Plan>::plan_of(config));
}

template <class Plan>
void memory(const Plan* plan, typename Interface<Plan>::Memory* out) {
  using I = Interface<Plan>;
  check_plan(plan, I::create);
  check_struct(out, "memory");
  const typename I::ForwardCall forward{};
  const typename I::BackwardCall backward{};
  if constexpr (requires { out->lse; })
    out->lse = I::kept_bytes(*plan);
  else
    out->kept = I::kept_bytes(*plan);
  out->forward_scratch = scratch_of(*plan, forward, I::template args<typename I::Forward>(*plan, forward, true)).all();
  out->backward_scratch = 0;
  if (I::has_backward(*plan))
    out->backward_scratch =
        scratch_of(*plan, backward, I::template args<typename I::Backward>(*plan, backward, true)).all();
}

template <class Plan, class Call>
void run(const Plan* plan, const Call* given) {
  using I = Interface<Plan>;
  constexpr bool forward = std::is_same_v<Call, typename I::ForwardCall>;
  check_plan(plan, I::create);
  const Call call = complete(given, forward ? "the forward call" : "the backward call");
  const Settings& s = I::settings(*plan);
  I::check(*plan, call);
  auto args =
      I::template args<std::conditional_t<forward, typename I::Forward, typename I::Backward>>(*plan, call, false);
  const ScratchBytes bytes = scratch_of(*plan, call, args);
  check_scratch(call.scratch, call.scratch_bytes, bytes.all(), I::memory);
  if (s.batch == 0) return;
  const Launch launch{.stream = call.stream};
  if (bytes.more > 0) I::prepare(*plan, args, static_cast<std::byte*>(call.scratch) + in_lines(bytes.kernel), launch);
  args.check(s.device);
  const Tensor needed = args.scratch_on(s.device);
  if (needed.given()) args.scratch = Tensor(call.scratch, needed.dtype(), needed.shape());
  launch_on(s.device, args, launch);
}

}  // namespace longstride::kernels::c_api
