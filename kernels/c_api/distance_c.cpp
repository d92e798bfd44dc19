// The functions of distance.h: what a caller in C may get wrong is checked here, and no exception leaves.
#include "kernels/c_api/distance.h"
#include "kernels/c_api/distance_settings.h"
#include "kernels/c_api/mistakes.h"
#include "kernels/c_api/run.h"
#include "kernels/c_api/views.h"
#include "kernels/distance_attention/distance_attention.h"

struct longstride_distance_plan {
  longstride::kernels::c_api::DistanceSettings settings;
};

namespace longstride::kernels::c_api {
namespace {

// An array of the call, or no tensor where the plan has none.
Tensor array_of(bool given, const void* data, Dtype dtype, const Shape& shape) {
  return given ? Tensor(const_cast<void*>(data), dtype, shape) : Tensor();
}

// Shapes of what a plan may have.
struct Parameters {
  const DistanceSettings& s;
  Dtype exact = exact_type(s.keys.device, s.keys.dtype);
  Shape table = {s.distances, s.shared_table ? 1 : s.keys.heads, s.keys.key_size};
  Shape bias = {s.keys.heads, s.keys.key_size};
  Shape span = {s.keys.heads};
};

DistanceScores scores_of(const DistanceSettings& s, const longstride_distance_scores& given) {
  const Parameters p{s};
  return {.q = view_of(s.queries, given.q, s.keys.key_size),
          .k = view_of(s.keys, given.k, s.keys.key_size),
          .table = array_of(s.distances > 0, given.table, s.keys.dtype, p.table),
          .content_bias = array_of(s.content_bias, given.content_bias, p.exact, p.bias),
          .position_bias = array_of(s.position_bias, given.position_bias, p.exact, p.bias),
          .span = array_of(s.spans(), given.span, p.exact, p.span),
          .longest_span = s.longest_span,
          .ramp = s.ramp,
          .first_key = array_of(s.first_keys, given.first_key, Dtype::i32, {s.keys.batch}),
          .window = s.window,
          .self = s.self,
          .dilation = s.dilation,
          .scale = s.keys.scale};
}

// The tensors of a call, whose memory matters only when `call` is given.
DistanceAttentionArgs forward_args(const DistanceSettings& s, const longstride_distance_forward_call* call) {
  const longstride_distance_forward_call any{};
  if (call == nullptr) call = &any;
  return {.scores = scores_of(s, call->scores),
          .v = view_of(s.keys, call->v, s.keys.value_size),
          .o = view_of(s.queries, call->o, s.keys.value_size),
          .lse = lse_of(s.queries, call->lse)};
}

DistanceAttentionBackwardArgs backward_args(const DistanceSettings& s, const longstride_distance_backward_call* call) {
  const longstride_distance_backward_call any{};
  const bool planning = call == nullptr;
  if (planning) call = &any;
  const Parameters p{s};
  const auto gradient = [&](bool has, const void* data, const Shape& shape) {
    return array_of(has && (planning || data != nullptr), data, p.exact, shape);
  };
  return {.scores = scores_of(s, call->scores),
          .v = view_of(s.keys, call->v, s.keys.value_size),
          .o = view_of(s.queries, call->o, s.keys.value_size),
          .lse = lse_of(s.queries, call->lse),
          .dout = view_of(s.queries, call->dout, s.keys.value_size),
          .dq = view_of(s.queries, call->dq, s.keys.key_size),
          .dk = view_of(s.keys, call->dk, s.keys.key_size),
          .dv = view_of(s.keys, call->dv, s.keys.value_size),
          .dtable = gradient(s.distances > 0, call->dtable, p.table),
          .dcontent_bias = gradient(s.content_bias, call->dcontent_bias, p.bias),
          .dposition_bias = gradient(s.position_bias, call->dposition_bias, p.bias),
          .dspan = gradient(s.spans(), call->dspan, p.span)};
}

void check_scores(const DistanceSettings& s, const longstride_distance_scores& given) {
  const std::size_t exact = bytes_of(Parameters{s}.exact);
  check_input(s.queries, given.q, "q");
  check_input(s.keys, given.k, "k");
  check_array(given.table, bytes_of(s.keys.dtype), s.distances == 0, "table");
  check_array(given.content_bias, exact, !s.content_bias, "content_bias");
  check_array(given.position_bias, exact, !s.position_bias, "position_bias");
  check_array(given.span, exact, !s.spans(), "span");
  if (s.keys.batch > 0 || !s.first_keys)  // else it has no elements
    check_array(given.first_key, sizeof(std::int32_t), !s.first_keys, "first_key");
}

// A gradient that is wanted, of something that the plan has.
void check_gradient(const DistanceSettings& s, const void* gradient, bool absent, const char* name) {
  if (gradient != nullptr) check_array(gradient, bytes_of(Parameters{s}.exact), absent, name);
}

void create(const longstride_distance_config* config, longstride_distance_plan** plan) {
  if (plan == nullptr) throw Mistake("plan is null, but must be where the plan is to be kept");
  *plan = nullptr;
  *plan = new longstride_distance_plan{distance_settings_of(config)};
}

const DistanceSettings& settings_of(const longstride_distance_plan* plan) {
  check_plan(plan, "longstride_distance_create");
  return plan->settings;
}

void memory(const longstride_distance_plan* plan, longstride_memory* out) {
  const DistanceSettings& s = settings_of(plan);
  check_struct(out, "memory");
  out->lse = lse_of(s.queries, nullptr).bytes();
  out->forward_scratch = forward_args(s, nullptr).scratch_on(s.keys.device).bytes();
  out->backward_scratch = backward_args(s, nullptr).scratch_on(s.keys.device).bytes();
}

void forward(const longstride_distance_plan* plan, const longstride_distance_forward_call* call) {
  const DistanceSettings& s = settings_of(plan);
  check_struct(call, "the forward call");
  check_scores(s, call->scores);
  check_input(s.keys, call->v, "v");
  check_output(s.queries, call->o, s.keys.value_size, "o");
  check_lse(s.queries, call->lse);
  run(s.keys, forward_args(s, call), *call, "longstride_distance_memory");
}

void backward(const longstride_distance_plan* plan, const longstride_distance_backward_call* call) {
  const DistanceSettings& s = settings_of(plan);
  check_struct(call, "the backward call");
  check_scores(s, call->scores);
  check_input(s.keys, call->v, "v");
  check_input(s.queries, call->o, "o");
  check_lse(s.queries, call->lse);
  check_input(s.queries, call->dout, "dout");
  check_output(s.queries, call->dq, s.keys.key_size, "dq");
  check_output(s.keys, call->dk, s.keys.key_size, "dk");
  check_output(s.keys, call->dv, s.keys.value_size, "dv");
  check_gradient(s, call->dtable, s.distances == 0, "dtable");
  check_gradient(s, call->dcontent_bias, !s.content_bias, "dcontent_bias");
  check_gradient(s, call->dposition_bias, !s.position_bias, "dposition_bias");
  check_gradient(s, call->dspan, !s.spans(), "dspan");
  run(s.keys, backward_args(s, call), *call, "longstride_distance_memory");
}

}  // namespace
}  // namespace longstride::kernels::c_api

namespace c_api = longstride::kernels::c_api;

extern "C" {

longstride_status longstride_distance_create(const longstride_distance_config* config,
                                             longstride_distance_plan** plan) {
  return c_api::status_of([&] { c_api::create(config, plan); });
}
void longstride_distance_destroy(longstride_distance_plan* plan) { delete plan; }

longstride_status longstride_distance_memory(const longstride_distance_plan* plan, longstride_memory* memory) {
  return c_api::status_of([&] { c_api::memory(plan, memory); });
}
longstride_status longstride_distance_forward(const longstride_distance_plan* plan,
                                              const longstride_distance_forward_call* call) {
  return c_api::status_of([&] { c_api::forward(plan, call); });
}
longstride_status longstride_distance_backward(const longstride_distance_plan* plan,
                                               const longstride_distance_backward_call* call) {
  return c_api::status_of([&] { c_api::backward(plan, call); });
}
}
