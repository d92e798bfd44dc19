#include "framework/train/attention_maps.h"

#include "framework/core/device/memory.h"
#include "framework/ops/state.h"

namespace longstride {
namespace {

class Reader {
 public:
  Reader(const Model& model, const Objective& objective, const ShownText& text)
      : model_(model),
        objective_(objective),
        text_(text),
        layout_(model.fields(), 1, model.context()),
        block_(layout_.bytes()),
        batch_(layout_.at(block_.data())) {}

  std::int64_t count() const { return std::ssize(text_.windows) / each() / model_.context(); }

  // A planning context needs but one window before the one shown.
  void read(Context& ctx, const std::vector<std::int64_t>& queries, const MixesPositions::AttentionVisitor& visit,
            const std::function<void(std::int64_t)>& done) {
    Scratch scratch(ctx);
    ctx.state = ops::take_states(ctx, model_.states(), 1, scratch);
    const std::int64_t last = ctx.planning() ? std::min<std::int64_t>(1, count() - 1) : count() - 1;
    for (std::int64_t window = 0; window <= last; ++window) {
      fill(window);
      if (ctx.state.given()) ops::begin_states(ctx, model_.states(), ctx.state, batch_.starts);
      if (window == last) {
        required<MixesPositions>(model_, "show what it attends to").visit_attention(ctx, batch_, queries, visit);
      } else {
        Scratch inner(ctx);
        model_.losses(ctx, batch_, inner.tensor({1, model_.fields().losses(model_.context())}, ctx.exact));
        ops::keep_states(ctx, ctx.state);
        if (done && !ctx.planning()) done(window + 1);
      }
    }
    ctx.state = {};
  }

 private:
  std::int64_t each() const { return text_.wide ? 2 : 1; }  // bytes of an id

  void fill(std::int64_t window) {
    const std::int64_t first = window * model_.context();
    const std::int64_t offset = text_.offset + first;
    const kernels::Ids ids{text_.windows.data(), text_.wide};
    objective_.write_row_of(batch_, 0,
                            {.bytes = text_.windows.data() + first * each(),
                             .before = static_cast<std::uint16_t>(window > 0 ? ids[first - 1] : 0),
                             .starts = window == 0,
                             .documents = {text_.documents, offset},
                             .groups = {text_.groups, text_.groups_offset + offset},
                             .offset = offset,
                             .wide = text_.wide},
                            {0, window});
  }

  const Model& model_;
  const Objective& objective_;
  const ShownText& text_;
  BatchLayout layout_;
  std::vector<std::byte> block_;
  Batch batch_;
};

}  // namespace

std::int64_t windows_that_matter(const Model& model) {
  const auto* mixes = capability<MixesPositions>(model);
  if (mixes == nullptr || model.states().empty()) return 0;
  // The first position of the first window reads the start vector instead of the byte before, so none that is read may
  // be that one.
  return look_back(*mixes).before_segment / model.context() + 1;
}

void show_attention(const Model& model, const Objective& objective, const ShownText& text,
                    const std::vector<std::int64_t>& queries, const MixesPositions::AttentionVisitor& visit,
                    const std::function<void(std::int64_t)>& read) {
  Reader reader(model, objective, text);
  LONGSTRIDE_CHECK(reader.count() > 0 && std::ssize(text.windows) % (model.context() * (text.wide ? 2 : 1)) == 0,
                   "{} bytes for windows of {}", text.windows.size(), model.context());
  Arena counting;
  Context ctx;
  ctx.arena = &counting;
  ctx.seed = text.seed;
  ctx.trained = text.trained;
  reader.read(ctx, queries, visit, read);
  const Block memory(Device::cpu, counting.high_water());
  Arena arena(memory.data(), memory.bytes());
  ctx.arena = &arena;
  reader.read(ctx, queries, visit, read);
}

}  // namespace longstride
