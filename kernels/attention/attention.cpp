#include "kernels/attention/attention.h"

#include <string>

#include "kernels/attention/choice.h"
#include "kernels/attention/grouped_gradients.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {
namespace {

void check_bounds(const RowBounds& bounds, std::int64_t batch, std::int64_t heads, std::int64_t queries,
                  std::int64_t keys) {
  for (const Tensor* t : {&bounds.begin, &bounds.end}) {
    const bool fits = t->given() && t->rank() == 3 && t->size(0) == batch && (t->size(1) == heads || t->size(1) == 1) &&
                      t->size(2) == queries && t->contiguous() && t->dtype() == Dtype::i32 &&
                      t->size(1) == bounds.begin.size(1);
    LONGSTRIDE_CHECK(fits, "attention's bounds are {} of {}, but must be contiguous ({}, {} or 1, {}) of i32",
                     t->shape().text(), name_of(t->dtype()), batch, heads, queries);
  }
  LONGSTRIDE_CHECK(!bounds.documents || queries == keys, "documents of {} queries and {} keys", queries, keys);
}

// from_keys: the lists are needed from both sides.
void check_lists(const BlockLists& lists, const AttentionPlan& plan, std::int64_t batch, bool from_keys) {
  const std::int32_t block = lists.block;
  LONGSTRIDE_CHECK(
      block > 0 && block % BlockLists::unit == 0 && block % plan.tile.queries == 0 && block % plan.tile.keys == 0,
      "attention's lists have blocks of {}, but must have a multiple of {} and of tiles of {} and {}", block,
      BlockLists::unit, plan.tile.queries, plan.tile.keys);
  LONGSTRIDE_CHECK(plan.parts.size() == 1 && plan.parts[0].kind == PartKind::dense,
                   "attention has lists and a plan of {} parts, but lists restrict one dense part", plan.parts.size());
  const Tensor& first = lists.key_begin;
  const auto check = [&](const Tensor& t, std::int64_t count, std::int64_t heads) {
    const bool fits = t.given() && t.rank() == 3 && (t.size(0) == batch || t.size(0) == 1) &&
                      (t.size(1) == heads || t.size(1) == 1) && (count < 0 || t.size(2) == count) && t.contiguous() &&
                      t.dtype() == Dtype::i32 && t.size(0) == first.size(0) && t.size(1) == first.size(1);
    LONGSTRIDE_CHECK(fits, "attention's lists are {} of {}, but must be contiguous ({} or 1, {} or 1, {}) of i32",
                     t.shape().text(), name_of(t.dtype()), batch, heads, count < 0 ? lists.keys.size(2) : count);
  };
  const auto heads = static_cast<std::int64_t>(plan.heads.size());
  check(first, tiles_in(plan.queries, block) + 1, heads);
  check(lists.keys, -1, heads);
  if (!from_keys) return;
  check(lists.query_begin, tiles_in(plan.n, block) + 1, heads);
  check(lists.queries, lists.keys.size(2), heads);
}

void check_labels(const Labels& labels, const Tensor& q, std::int64_t keys) {
  const std::int64_t batch = q.size(0), heads = q.size(2), size = q.size(3), count = labels.count();
  const Tensor &table = labels.table, &of_queries = labels.query_groups, &of_keys = labels.key_groups;
  LONGSTRIDE_CHECK(table.rank() == 3 && count > 0 && (table.size(1) == heads || table.size(1) == 1),
                   "the labels' table is {}, but must be (labels, {} or 1, {})", table.shape().text(), heads, size);
  check_rows(table, {count, table.size(1), size}, q.dtype(), "the labels' table");
  const std::int64_t sets = of_keys.given() || of_queries.given() ? 2 : 1, clip = labels.clip;
  LONGSTRIDE_CHECK(clip >= 0 && (!labels.from_end || clip == 0),
                   "labels are clipped at {}, but the clip must be 0 or more, and 0 if they count from the end", clip);
  LONGSTRIDE_CHECK(labels.from_end ? count % sets == 0 : count == sets * (2 * clip + 1),
                   "the labels' table has {} rows, but must have {}", count,
                   labels.from_end ? std::string("two equal sets") : std::to_string(sets * (2 * clip + 1)));
  if (sets == 1) return;
  const auto fits = [&](const Tensor& groups, std::int64_t rows) {
    return groups.given() && groups.shape() == Shape({batch, rows}) && groups.contiguous() &&
           groups.dtype() == Dtype::i32;
  };
  LONGSTRIDE_CHECK(fits(of_queries, q.size(1)) && fits(of_keys, keys),
                   "the labels' groups are {} of {} and {} of {}, but must be contiguous ({}, {}) and ({}, {}) of i32",
                   of_queries.shape().text(), name_of(of_queries.dtype()), of_keys.shape().text(),
                   name_of(of_keys.dtype()), batch, q.size(1), batch, keys);
}

// Checks q, k, v, o, lse, bounds, lists and labels of one call against the plan and each other.
template <class Args>
void check_forward(Device device, const Args& args, bool with_gradients = false) {
  const Tensor &q = args.q, &v = args.v;
  check_computes(device, q, "attention's q");
  LONGSTRIDE_CHECK(q.rank() == 4 && v.rank() == 4,
                   "attention's q is {} and v {}, but must be (batch, seq, heads, size)", q.shape().text(),
                   v.shape().text());
  const std::int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), n = args.plan->n;
  LONGSTRIDE_CHECK(queries == args.plan->queries && v.size(1) == n && heads == std::ssize(args.plan->heads),
                   "attention of {} queries to {} keys with {} heads, but the plan is for {}, {} and {}", queries,
                   v.size(1), heads, args.plan->queries, n, args.plan->heads.size());
  const std::int64_t key_heads = v.size(2);
  LONGSTRIDE_CHECK(key_heads > 0 && heads % key_heads == 0,
                   "attention of {} heads to {} of keys, which must divide them", heads, key_heads);
  check_rows(q, q.shape(), q.dtype(), "attention's q");
  check_rows(args.k, {batch, n, key_heads, q.size(3)}, q.dtype(), "attention's k");
  check_rows(v, {batch, n, key_heads, v.size(3)}, q.dtype(), "attention's v");
  check_rows(args.o, {batch, queries, heads, v.size(3)}, q.dtype(), "attention's o");
  if (args.bounds.given() || args.bounds.end.given()) check_bounds(args.bounds, batch, heads, queries, n);
  if (args.lists.given()) check_lists(args.lists, *args.plan, batch, with_gradients);
  if (args.labels.given()) check_labels(args.labels, q, n);
  const Shape expected{batch, heads, queries};
  const Dtype exact = exact_type(device, q.dtype());
  if (args.sink.given()) check_vector(args.sink, heads, exact, "attention's sink");
  LONGSTRIDE_CHECK(args.lse.shape() == expected && args.lse.contiguous() && args.lse.dtype() == exact,
                   "attention's lse is {} of {}, but must be contiguous {} of {}", args.lse.shape().text(),
                   name_of(args.lse.dtype()), expected.text(), name_of(exact));
}

Tensor scratch_of(std::size_t bytes) { return {nullptr, Dtype::u8, {static_cast<std::int64_t>(bytes)}}; }

}  // namespace

void AttentionArgs::check(Device device) const { check_forward(device, *this); }

void AttentionBackwardArgs::check(Device device) const {
  check_forward(device, *this, true);
  check_rows(dout, o.shape(), o.dtype(), "attention's dout");
  check_rows(dq, q.shape(), q.dtype(), "attention's dq");
  check_rows(dk, k.shape(), q.dtype(), "attention's dk");
  check_rows(dv, v.shape(), q.dtype(), "attention's dv");
  LONGSTRIDE_CHECK(!dsink.given() || sink.given(), "attention's dsink is given without a sink");
  if (dsink.given()) check_vector(dsink, sink.count(), sink.dtype(), "attention's dsink");
  if (!dtable.given()) return;
  LONGSTRIDE_CHECK(labels.given(), "attention's dtable is given without labels, but must be absent");
  LONGSTRIDE_CHECK(dtable.shape() == labels.table.shape() && dtable.dtype() == lse.dtype() && dtable.contiguous(),
                   "attention's dtable is {} of {}, but must be contiguous {} of {}", dtable.shape().text(),
                   name_of(dtable.dtype()), labels.table.shape().text(), name_of(lse.dtype()));
}

Tensor AttentionArgs::scratch_on(Device device) const {
  if (device == Device::cpu) return scratch_of(cpu::attention_scratch_bytes(*this));
  if (!labels.given() && plan->queries > 1 && plan->queries == plan->n) return {};
  const std::size_t bytes = choose(*this).sums_bytes;
  return bytes > 0 ? scratch_of(bytes) : Tensor();
}

Tensor AttentionBackwardArgs::scratch_on(Device device) const {
  const std::size_t by_head = GroupedGradients::bytes_of(*this);
  if (device == Device::cpu) return scratch_of(by_head + cpu::attention_scratch_bytes(*this));
  const AttentionChoice choice = choose(*this);
  return scratch_of(by_head + choice.delta_bytes + choice.sums_bytes);
}

}  // namespace longstride::kernels
