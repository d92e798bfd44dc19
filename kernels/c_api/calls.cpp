// The functions of attention.h and distance.h: what a caller in C may get wrong is checked here, and no exception
// leaves. Both interfaces have one plan and run their calls in the same way; a distance adds its term to the arguments.
#include <memory>

#include "kernels/attention/attention.h"
#include "kernels/block_lists/block_lists.h"
#include "kernels/c_api/distance_settings.h"
#include "kernels/c_api/run.h"
#include "kernels/distance_attention/distance_attention.h"

struct longstride_plan {
  longstride::kernels::c_api::DistanceSettings settings;  // without a term
  longstride::kernels::c_api::Extras extras;
  std::shared_ptr<const longstride::kernels::AttentionPlan> pattern;
};
struct longstride_distance_plan {
  longstride::kernels::c_api::DistanceSettings settings;
};

namespace longstride::kernels::c_api {
namespace {

Tensor lse_of(const Settings& s, const void* lse) {
  return array_of(true, lse, exact_type(s.device, s.dtype), {s.batch, s.heads, s.n});
}

// Shapes of what a term may have.
struct Parameters {
  const DistanceSettings& s;
  Dtype exact = exact_type(s.keys.device, s.keys.dtype);
  Shape table = {s.distances, s.shared_table ? 1 : s.queries.heads, s.keys.key_size};
  Shape bias = {s.queries.heads, s.keys.key_size};
  Shape span = {s.queries.heads};
};

// The tensors that calls with and without a term have in common.
template <class Args, class Call>
Args rows_of(const DistanceSettings& s, const Call& call, Args args) {
  args.v = view_of(s.keys, call.v, s.keys.value_size);
  args.o = view_of(s.queries, call.o, s.keys.value_size);
  args.lse = lse_of(s.queries, call.lse);
  if constexpr (requires { call.dout; }) {
    args.dout = view_of(s.queries, call.dout, s.keys.value_size);
    args.dq = view_of(s.queries, call.dq, s.keys.key_size);
    args.dk = view_of(s.keys, call.dk, s.keys.key_size);
    args.dv = view_of(s.keys, call.dv, s.keys.value_size);
  }
  return args;
}

RowBounds bounds_of(const longstride_plan& plan, const std::int32_t* begin, const std::int32_t* end) {
  const Settings& s = plan.settings.queries;
  const auto of = [&](const std::int32_t* data) {
    return array_of(plan.extras.bounds != LONGSTRIDE_NO_BOUNDS, data, Dtype::i32,
                    {s.batch, plan.extras.bounds_heads, s.n});
  };
  if (plan.extras.bounds == LONGSTRIDE_DOCUMENTS) return RowBounds::of_documents(of(begin), of(end));
  return {.begin = of(begin), .end = of(end)};
}

BlockLists lists_of(const longstride_plan& plan, const std::int32_t* key_begin, const std::int32_t* keys) {
  const Extras& e = plan.extras;
  if (e.block == 0) return {};
  const std::int64_t blocks = tiles_in(plan.pattern->queries, e.block);
  return {.block = e.block,
          .key_begin = array_of(true, key_begin, Dtype::i32, {e.list_batch, e.list_heads, blocks + 1}),
          .keys = array_of(true, keys, Dtype::i32, {e.list_batch, e.list_heads, e.list_entries})};
}

// Makes room in scratch for the lists seen from the keys, and counts its bytes; without memory it only counts.
BlockListsArgs lists_from_keys(const longstride_plan& plan, const BlockLists& lists, std::byte* memory,
                               std::size_t& bytes) {
  BlockListsArgs args{lists};
  const auto take = [&](const Shape& shape) {
    const Tensor t(memory == nullptr ? nullptr : memory + bytes, Dtype::i32, shape);
    bytes += in_lines(t.bytes());
    return t;
  };
  const Shape all = lists.keys.shape();
  args.lists.query_begin = take({all[0], all[1], tiles_in(plan.pattern->n, lists.block) + 1});
  args.lists.queries = take(all);
  if (const Tensor needed = args.scratch_on(plan.settings.keys.device); needed.given())
    args.scratch = take(needed.shape());
  return args;
}

Shape table_of(const longstride_plan& plan) {
  const Settings& s = plan.settings.queries;
  return {plan.extras.labels, plan.extras.shared_labels ? 1 : s.heads, s.key_size};
}

template <class Call>
Labels labels_of(const longstride_plan& plan, const Call& call) {
  const Settings &queries = plan.settings.queries, &keys = plan.settings.keys;
  const Extras& e = plan.extras;
  return {.table = array_of(e.labels > 0, call.table, keys.dtype, table_of(plan)),
          .clip = e.clip,
          .query_groups = array_of(e.label_groups, call.query_groups, Dtype::i32, {queries.batch, queries.n}),
          .key_groups = array_of(e.label_groups, call.key_groups, Dtype::i32, {keys.batch, keys.n}),
          .from_end = e.labels_from_end};
}

// planning: gradients of all parameters are there, also below.
template <class Args, class Call>
Args args_of(const longstride_plan& plan, const Call& call, bool planning) {
  const DistanceSettings& s = plan.settings;
  Args args{};
  args.plan = plan.pattern.get();
  args.q = view_of(s.queries, call.q, s.keys.key_size);
  args.k = view_of(s.keys, call.k, s.keys.key_size);
  args.scale = s.keys.scale;
  args.bounds = bounds_of(plan, call.begin, call.end);
  args.lists = lists_of(plan, call.key_begin, call.keys);
  args.labels = labels_of(plan, call);
  const Parameters p{s};
  args.sink = array_of(plan.extras.sink, call.sink, p.exact, p.span);
  if constexpr (requires { call.dtable; }) {
    args.dsink = array_of(plan.extras.sink && (planning || call.dsink != nullptr), call.dsink, p.exact, p.span);
    args.dtable =
        array_of(plan.extras.labels > 0 && (planning || call.dtable != nullptr), call.dtable, p.exact, table_of(plan));
  }
  return rows_of(plan.settings, call, args);
}

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

template <class Args, class Call>
Args args_of(const longstride_distance_plan& plan, const Call& call, bool planning) {
  const DistanceSettings& s = plan.settings;
  Args args{};
  args.scores = scores_of(s, call.scores);
  if constexpr (requires { call.dtable; }) {
    const Parameters p{s};
    const auto gradient = [&](bool has, const void* data, const Shape& shape) {
      return array_of(has && (planning || data != nullptr), data, p.exact, shape);
    };
    args.dtable = gradient(s.distances > 0, call.dtable, p.table);
    args.dcontent_bias = gradient(s.content_bias, call.dcontent_bias, p.bias);
    args.dposition_bias = gradient(s.position_bias, call.dposition_bias, p.bias);
    args.dspan = gradient(s.spans(), call.dspan, p.span);
  }
  return rows_of(s, call, args);
}

// A gradient that is wanted, of something that the plan has.
void check_gradient(const DistanceSettings& s, const void* gradient, bool absent, const char* name) {
  check_optional(gradient, bytes_of(Parameters{s}.exact), absent, name);
}

template <class Call>
void check_parameters(const longstride_distance_plan& plan, const Call& call) {
  const DistanceSettings& s = plan.settings;
  const longstride_distance_scores& given = call.scores;
  const std::size_t exact = bytes_of(Parameters{s}.exact);
  check_array(given.table, bytes_of(s.keys.dtype), s.distances == 0, "table");
  check_array(given.content_bias, exact, !s.content_bias, "content_bias");
  check_array(given.position_bias, exact, !s.position_bias, "position_bias");
  check_array(given.span, exact, !s.spans(), "span");
  if (s.keys.batch > 0 || !s.first_keys)  // else it has no elements
    check_array(given.first_key, sizeof(std::int32_t), !s.first_keys, "first_key");
  if constexpr (requires { call.dtable; }) {
    check_gradient(s, call.dtable, s.distances == 0, "dtable");
    check_gradient(s, call.dcontent_bias, !s.content_bias, "dcontent_bias");
    check_gradient(s, call.dposition_bias, !s.position_bias, "dposition_bias");
    check_gradient(s, call.dspan, !s.spans(), "dspan");
  }
}

template <class Call>
void check_parameters(const longstride_plan& plan, const Call& call) {
  const DistanceSettings& s = plan.settings;
  const bool bounded = plan.extras.bounds != LONGSTRIDE_NO_BOUNDS, on_cpu = s.keys.device == Device::cpu;
  if (s.keys.batch > 0 || !bounded) {
    check_array(call.begin, sizeof(std::int32_t), !bounded, "begin");
    check_array(call.end, sizeof(std::int32_t), !bounded, "end");
    if (bounded && on_cpu) check_bounds(s.queries, plan.extras, s.keys.n, call.begin, call.end);
  }
  check_array(call.sink, bytes_of(Parameters{s}.exact), !plan.extras.sink, "sink");
  check_array(call.table, bytes_of(s.keys.dtype), plan.extras.labels == 0, "table");
  if (s.keys.batch > 0 || !plan.extras.label_groups) {
    check_array(call.query_groups, sizeof(std::int32_t), !plan.extras.label_groups, "query_groups");
    check_array(call.key_groups, sizeof(std::int32_t), !plan.extras.label_groups, "key_groups");
  }
  if (plan.extras.sink && on_cpu) check_sink(s.queries, call.sink);
  if constexpr (requires { call.dsink; }) {
    check_gradient(s, call.dsink, !plan.extras.sink, "dsink");
    check_gradient(s, call.dtable, plan.extras.labels == 0, "dtable");
  }
  const bool listed = plan.extras.block > 0;
  if (s.keys.batch == 0) return;
  check_array(call.key_begin, sizeof(std::int32_t), !listed, "key_begin");
  if (!listed || plan.extras.list_entries > 0) check_array(call.keys, sizeof(std::int32_t), !listed, "keys");
  if (listed && on_cpu) check_lists(lists_of(plan, call.key_begin, call.keys), plan.pattern->n);
}

template <class Call>
void check_gradients(const DistanceSettings& s, const Call& call) {
  check_input(s.queries, call.dout, "dout");
  check_output(s.queries, call.dq, s.keys.key_size, "dq");
  check_output(s.keys, call.dk, s.keys.key_size, "dk");
  check_output(s.keys, call.dv, s.keys.value_size, "dv");
}

template <class Plan, class Call>
void check_call(const Plan& plan, const Call& call) {
  const DistanceSettings& s = plan.settings;
  const auto scores = [&](const auto& given) {
    check_input(s.queries, given.q, "q");
    check_input(s.keys, given.k, "k");
  };
  if constexpr (requires { call.scores; })
    scores(call.scores);
  else
    scores(call);
  check_parameters(plan, call);
  check_input(s.keys, call.v, "v");
  if constexpr (requires { call.dout; })
    check_input(s.queries, call.o, "o");
  else
    check_output(s.queries, call.o, s.keys.value_size, "o");
  check_lse(s.queries, call.lse);
  if constexpr (requires { call.dout; }) check_gradients(s, call);
}

// Calls with and without a term have this in common.
template <class Plan>
struct AttentionInterface {
  using Memory = longstride_memory;

  static const Settings& settings(const Plan& plan) { return plan.settings.keys; }
  static std::size_t kept_bytes(const Plan& plan) { return lse_of(plan.settings.queries, nullptr).bytes(); }
  static bool has_backward(const Plan&) { return true; }
  template <class Call>
  static void check(const Plan& plan, const Call& call) {
    check_call(plan, call);
  }
  template <class Args, class Call>
  static Args args(const Plan& plan, const Call& call, bool planning) {
    return args_of<Args>(plan, call, planning);
  }
  // For lists seen from the keys.
  template <class Call, class Args>
  static std::size_t more_scratch(const Plan& plan, const Call&, const Args& args) {
    std::size_t bytes = 0;
    if constexpr (requires {
                    args.lists;
                    args.dout;
                  })
      if (args.lists.given()) lists_from_keys(plan, args.lists, nullptr, bytes);
    return bytes;
  }
  template <class Args>
  static void prepare(const Plan& plan, Args& args, std::byte* more, const Launch& launch) {
    if constexpr (requires { args.lists; }) {
      std::size_t bytes = 0;
      const BlockListsArgs lists = lists_from_keys(plan, args.lists, more, bytes);
      lists.check(plan.settings.keys.device);
      launch_on(plan.settings.keys.device, lists, launch);
      args.lists = lists.lists;
    }
  }
};

longstride_plan attention_plan_of(const longstride_plan_config* given) {
  const longstride_plan_config config = complete(given, "the plan's config");
  const Settings keys = settings_of(config);
  const longstride_pattern described = complete(config.pattern, "the pattern");
  const PatternConfig pattern = pattern_of(described, config.heads);
  const Settings queries = queries_of(config, pattern, keys);
  longstride_plan plan{{.queries = queries, .keys = keys},
                       extras_of(config, queries, keys),
                       make_plan(pattern, described.layer, queries.heads, keys.n, {}, queries.n)};
  const std::vector<Part>& parts = plan.pattern->parts;
  if (plan.extras.block > 0 && (parts.size() != 1 || parts[0].kind != PartKind::dense))
    throw Mistake("block is {}, but lists restrict a pattern of one part, dense", config.block);
  return plan;
}

}  // namespace

template <>
struct Interface<longstride_plan> : AttentionInterface<longstride_plan> {
  static constexpr const char *create = "longstride_attention_create", *memory = "longstride_attention_memory";
  using ForwardCall = longstride_forward_call;
  using BackwardCall = longstride_backward_call;
  using Forward = AttentionArgs;
  using Backward = AttentionBackwardArgs;
  static longstride_plan plan_of(const longstride_plan_config* config) { return attention_plan_of(config); }
};
template <>
struct Interface<longstride_distance_plan> : AttentionInterface<longstride_distance_plan> {
  static constexpr const char *create = "longstride_distance_create", *memory = "longstride_distance_memory";
  using ForwardCall = longstride_distance_forward_call;
  using BackwardCall = longstride_distance_backward_call;
  using Forward = DistanceAttentionArgs;
  using Backward = DistanceAttentionBackwardArgs;
  static longstride_distance_plan plan_of(const longstride_distance_config* config) {
    return {distance_settings_of(config)};
  }
};

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
  return c_api::status_of([&] { c_api::run(plan, call); });
}
longstride_status longstride_attention_backward(const longstride_plan* plan, const longstride_backward_call* call) {
  return c_api::status_of([&] { c_api::run(plan, call); });
}

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
  return c_api::status_of([&] { c_api::run(plan, call); });
}
longstride_status longstride_distance_backward(const longstride_distance_plan* plan,
                                               const longstride_distance_backward_call* call) {
  return c_api::status_of([&] { c_api::run(plan, call); });
}
}
