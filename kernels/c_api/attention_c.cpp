// The functions of attention.h: what a caller in C may get wrong is checked here, and no exception leaves.
#include <cmath>
#include <memory>

#include "kernels/attention/attention.h"
#include "kernels/c_api/attention.h"
#include "kernels/c_api/mistakes.h"
#include "kernels/c_api/run.h"
#include "kernels/c_api/settings.h"
#include "kernels/c_api/views.h"

struct longstride_plan {
  longstride::kernels::c_api::Settings settings;
  std::shared_ptr<const longstride::kernels::AttentionPlan> plan;
};

namespace longstride::kernels::c_api {
namespace {

// The tensors of a call, whose memory matters only when `call` is given.
AttentionArgs forward_args(const longstride_plan& plan, const longstride_forward_call* call) {
  const Settings& s = plan.settings;
  const longstride_forward_call any{};
  if (call == nullptr) call = &any;
  return {.plan = plan.plan.get(),
          .q = view_of(s, call->q, s.key_size),
          .k = view_of(s, call->k, s.key_size),
          .v = view_of(s, call->v, s.value_size),
          .o = view_of(s, call->o, s.value_size),
          .lse = lse_of(s, call->lse),
          .scale = s.scale};
}

AttentionBackwardArgs backward_args(const longstride_plan& plan, const longstride_backward_call* call) {
  const Settings& s = plan.settings;
  const longstride_backward_call any{};
  if (call == nullptr) call = &any;
  return {.plan = plan.plan.get(),
          .q = view_of(s, call->q, s.key_size),
          .k = view_of(s, call->k, s.key_size),
          .v = view_of(s, call->v, s.value_size),
          .o = view_of(s, call->o, s.value_size),
          .lse = lse_of(s, call->lse),
          .dout = view_of(s, call->dout, s.value_size),
          .dq = view_of(s, call->dq, s.key_size),
          .dk = view_of(s, call->dk, s.key_size),
          .dv = view_of(s, call->dv, s.value_size),
          .scale = s.scale};
}

void create(const longstride_plan_config* config, longstride_plan** plan) {
  if (plan == nullptr) throw Mistake("plan is null, but must be where the plan is to be kept");
  *plan = nullptr;
  const Settings settings = settings_of(config);
  const PatternConfig pattern = pattern_of(config->pattern, settings.heads);
  *plan = new longstride_plan{settings, make_plan(pattern, config->pattern->layer, settings.heads, settings.n)};
}

void memory(const longstride_plan* plan, longstride_memory* out) {
  check_plan(plan, "longstride_attention_create");
  check_struct(out, "memory");
  const Settings& s = plan->settings;
  out->lse = lse_of(s, nullptr).bytes();
  out->forward_scratch = forward_args(*plan, nullptr).scratch_on(s.device).bytes();
  out->backward_scratch = backward_args(*plan, nullptr).scratch_on(s.device).bytes();
}

void forward(const longstride_plan* plan, const longstride_forward_call* call) {
  check_plan(plan, "longstride_attention_create");
  check_struct(call, "the forward call");
  const Settings& s = plan->settings;
  check_input(s, call->q, "q");
  check_input(s, call->k, "k");
  check_input(s, call->v, "v");
  check_output(s, call->o, s.value_size, "o");
  check_lse(s, call->lse);
  run(s, forward_args(*plan, call), *call, "longstride_attention_memory");
}

void backward(const longstride_plan* plan, const longstride_backward_call* call) {
  check_plan(plan, "longstride_attention_create");
  check_struct(call, "the backward call");
  const Settings& s = plan->settings;
  check_input(s, call->q, "q");
  check_input(s, call->k, "k");
  check_input(s, call->v, "v");
  check_input(s, call->o, "o");
  check_lse(s, call->lse);
  check_input(s, call->dout, "dout");
  check_output(s, call->dq, s.key_size, "dq");
  check_output(s, call->dk, s.key_size, "dk");
  check_output(s, call->dv, s.value_size, "dv");
  run(s, backward_args(*plan, call), *call, "longstride_attention_memory");
}

}  // namespace
}  // namespace longstride::kernels::c_api

namespace c_api = longstride::kernels::c_api;

extern "C" {

const char* longstride_last_error(void) { return c_api::last_error(); }
const char* longstride_version(void) { return LONGSTRIDE_VERSION; }
int longstride_has_cuda(void) { return c_api::has_cuda ? 1 : 0; }

longstride_status longstride_attention_create(const longstride_plan_config* config, longstride_plan** plan) {
  return c_api::status_of([&] { c_api::create(config, plan); });
}
void longstride_attention_destroy(longstride_plan* plan) { delete plan; }

longstride_status longstride_attention_memory(const longstride_plan* plan, longstride_memory* memory) {
  return c_api::status_of([&] { c_api::memory(plan, memory); });
}
longstride_status longstride_attention_forward(const longstride_plan* plan, const longstride_forward_call* call) {
  return c_api::status_of([&] { c_api::forward(plan, call); });
}
longstride_status longstride_attention_backward(const longstride_plan* plan, const longstride_backward_call* call) {
  return c_api::status_of([&] { c_api::backward(plan, call); });
}
}
