#include "framework/train/sample/sampler.h"

#include <algorithm>
#include <array>
#include <string>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

constexpr std::int64_t most_on_gpu = 16;
constexpr std::int64_t block = 64;  // positions between two waits for the GPU

using PositionsDone = std::function<bool(std::int64_t)>;  // positions done; whether to continue

std::int64_t batch_of(const Context& ctx, const SampleConfig& config) {
  if (config.batch > 0) return std::min(config.batch, config.count);
  return ctx.queue().immediate() ? config.count : std::min(config.count, most_on_gpu);
}

// Bytes of a token in prompts and samples.
std::int64_t token_bytes(const Model& model) { return model.vocabulary() > ids::bytes ? 2 : 1; }

std::int64_t prompted(const Model& model, const SampleConfig& config) {
  return config.prompts.empty() ? 0 : std::ssize(config.prompts.front()) / token_bytes(model);
}

// Sequences [first, first + batch) of those to draw, in one window, and their memory.
class DrawnSequences {
 public:
  DrawnSequences(const Model& model, Context& ctx, const SampleConfig& config, std::int64_t first, std::int64_t batch)
      : decodes_(required<Decodes>(model, "generate sequences; use `longstride predict` or `longstride encode`")),
        generator_(capability<GeneratesInOneKernel>(model)),
        ctx_(ctx),
        config_(config),
        batch_(batch),
        context_(model.context()),
        each_(token_bytes(model)),
        queue_(ctx.queue()),
        state_(decodes_.begin_decoding(ctx_, batch, config.length)),
        scratch_(ctx_) {
    drawing_.sampling = config.sampling;
    drawing_.prompted = prompted(model, config);
    drawing_.first_sequence = first;
    const Dtype id = kernels::id_type(model.vocabulary());
    drawing_.bytes = scratch_.tensor({batch, config.length}, id);
    drawing_.log_probabilities = scratch_.tensor({batch, config.length}, Dtype::f32);
    drawing_.previous = scratch_.tensor({batch, 1}, id);
    logits_ = scratch_.tensor({batch, model.vocabulary()}, ctx.exact);
    if (!queue_.immediate()) position_ = scratch_.tensor({1}, Dtype::i64);
  }

  // Counts memory by planning the position that takes the most, without arithmetic: where the last segment begins
  // (Decodes::begin_position).
  SampleMemory plan() {
    one_position((config_.length - 1) / context_ * context_);
    for (const std::int64_t first : {std::int64_t{1}, context_})  // within the first window, and of a whole one
      if (const std::int64_t count = together(first); count > 1) several_positions(first, count);
    return {state_->bytes(), static_cast<std::int64_t>(ctx_.arena->high_water())};
  }

  // False if `progress` has ended it: then the sequences have the positions that it was told of. `shown`: the first
  // positions, which have been shown before.
  bool run(Samples& out, const PositionsDone& progress, std::int64_t shown = 0) {
    std::int64_t done = 0;
    const auto told = [&](std::int64_t positions) {
      done = positions;
      if (config_.shown) show(shown, done);
      return progress(positions);
    };
    begin();
    bool all = false;
    if (queue_.immediate())
      all = one_by_one(told);
    else if (config_.one_kernel && generator_ != nullptr && generator_->generates(*state_))
      all = in_one_kernel(told);
    else
      all = by_graph(told);
    fetch(out, all ? config_.length : done);
    return all;
  }

 private:
  void begin() {
    std::vector<std::uint8_t> bytes(drawing_.bytes.bytes(), 0);
    for (std::int64_t s = 0; s < batch_ && !config_.prompts.empty(); ++s) {
      const bool own = config_.prompts.size() == static_cast<std::size_t>(batch_);  // the batch's, not all sequences'
      const std::size_t index =
          config_.prompts.size() == 1 ? 0 : static_cast<std::size_t>((own ? 0 : drawing_.first_sequence) + s);
      std::copy(config_.prompts[index].begin(), config_.prompts[index].end(),
                bytes.begin() + s * config_.length * each_);
    }
    queue_.copy_to_device(drawing_.bytes.data(), bytes.data(), bytes.size());
    queue_.zero(drawing_.previous.data(), drawing_.previous.bytes());
    if (position_.given()) queue_.zero(position_.data(), position_.bytes());
    queue_.synchronize();  // `bytes` ends here
  }

  void one_position(std::int64_t position) {
    decodes_.decode(ctx_, *state_, position, drawing_.previous, logits_);
    ops::run(ctx_, kernels::DrawArgs{drawing_, logits_, position, ctx_.position});
  }

  // Positions of the prompt from this one on that are read at once.
  std::int64_t together(std::int64_t position) const {
    return std::min(decodes_.positions_together(position), drawing_.prompted - position);
  }

  void several_positions(std::int64_t first, std::int64_t count) {
    Scratch scratch(ctx_);
    const std::int64_t vocabulary = logits_.size(1);
    const Tensor before = scratch.tensor({batch_, 1, count}, drawing_.bytes.dtype()),
                 all = scratch.tensor({batch_ * count, vocabulary}, logits_.dtype()),
                 by_row = all.reshape({batch_, count, vocabulary});
    const Tensor bytes = drawing_.bytes.reshape({batch_, 1, config_.length});
    ops::run(ctx_, kernels::CopyRowsArgs{bytes.slice(2, first - 1, first - 1 + count), before});
    decodes_.decode(ctx_, *state_, first, before.reshape({batch_, count}), all);
    for (std::int64_t i = 0; i < count; ++i) {
      ops::run(ctx_, kernels::CopyRowsArgs{by_row.slice(1, i, i + 1), logits_.reshape({batch_, 1, vocabulary})});
      ops::run(ctx_, kernels::DrawArgs{drawing_, logits_, first + i});
    }
  }

  // Reads a prompt of which a model takes several positions at once, and says where it ended; of other models nothing.
  std::int64_t read_prompt(const PositionsDone& progress, bool& go_on) {
    if (together(1) <= 1) return 0;
    std::int64_t position = 0;
    while (go_on && position < drawing_.prompted) {
      const std::int64_t count = together(position);
      count > 1 ? several_positions(position, count) : one_position(position);
      position += count;
      queue_.synchronize();
      go_on = progress(position);
    }
    return position;
  }

  bool one_by_one(const PositionsDone& progress) {
    bool go_on = true;
    std::int64_t position = read_prompt(progress, go_on);
    if (!go_on) return false;
    for (; position < config_.length; ++position) {
      one_position(position);
      if (!progress(position + 1)) return false;
    }
    return true;
  }

  bool in_one_kernel(const PositionsDone& progress) {
    return in_blocks(0, progress, [&](std::int64_t first, std::int64_t count) {
      generator_->generate(ctx_, *state_, drawing_, first, count);
    });
  }

  // The first position runs kernel by kernel, so that libraries choose their algorithms and kernels are loaded.
  bool by_graph(const PositionsDone& progress) {
    bool go_on = true;
    const std::int64_t begin = read_prompt(progress, go_on);
    if (!go_on || begin == config_.length) return go_on;
    queue_.copy_to_device(position_.data(), &begin, sizeof(begin));
    queue_.synchronize();
    ctx_.position = position_.as<std::int64_t>();
    decodes_.begin_position(ctx_, *state_, begin);
    one_position(begin);
    Graph graph;
    if (config_.length > begin + 1) graph.capture(queue_, [&] { one_position(begin); });
    return in_blocks(begin + 1, progress, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t position = first; position < first + count; ++position) {
        decodes_.begin_position(ctx_, *state_, position);
        graph.replay(queue_);
      }
    });
  }

  // The host is at most two blocks ahead of the GPU, which is idle on return.
  template <class F>
  bool in_blocks(std::int64_t first, const PositionsDone& progress, F&& f) {
    std::array<Event, 2> done;
    std::int64_t blocks = 0;
    bool all = true;
    for (std::int64_t position = first; position < config_.length; position += block) {
      Event& event = done[static_cast<std::size_t>(blocks++ % 2)];
      event.wait();
      if (blocks > 2) all = progress(position - block);
      if (!all) break;
      f(position, std::min(block, config_.length - position));
      event.record(queue_);
    }
    queue_.synchronize();
    return all && progress(config_.length);
  }

  void show(std::int64_t& shown, std::int64_t done) {
    if (done <= shown) return;
    std::string text(static_cast<std::size_t>((done - shown) * each_), '\0');
    queue_.copy_to_host(text.data(), static_cast<const std::uint8_t*>(drawing_.bytes.data()) + shown * each_,
                        text.size());
    queue_.synchronize();
    shown = done;
    config_.shown(text);
  }

  void fetch(Samples& out, std::int64_t positions) {
    std::vector<std::uint8_t> bytes(drawing_.bytes.bytes());
    std::vector<float> logs(static_cast<std::size_t>(drawing_.bytes.count()));
    queue_.copy_to_host(bytes.data(), drawing_.bytes.data(), drawing_.bytes.bytes());
    queue_.copy_to_host(logs.data(), drawing_.log_probabilities.data(), drawing_.log_probabilities.bytes());
    queue_.synchronize();
    for (std::int64_t s = 0; s < batch_; ++s) {
      const std::int64_t begin = s * config_.length, end = begin + positions;
      out.bytes.emplace_back(bytes.begin() + begin * each_, bytes.begin() + end * each_);
      out.log_probabilities.emplace_back(logs.begin() + begin, logs.begin() + end);
    }
  }

  const Decodes& decodes_;
  const GeneratesInOneKernel* generator_;  // null: the model has no such kernel
  Context ctx_;
  const SampleConfig& config_;
  std::int64_t batch_, context_, each_;
  const Queue queue_;
  std::unique_ptr<DecodingState> state_;
  Scratch scratch_;
  kernels::Drawing drawing_;
  Tensor logits_, position_;
};

bool slides(const Model& model, const SampleConfig& config) { return config.length > longest_window(model); }

std::uint64_t seed_of_window(std::uint64_t seed, std::uint64_t window) {  // the first one's is the samples' own
  constexpr std::uint64_t apart = 0x9E3779B97F4A7C15;                     // odd, so no two windows share a seed
  return seed + window * apart;
}

std::vector<std::uint8_t> prompt_of(const SampleConfig& config, std::int64_t sequence) {
  if (config.prompts.empty()) return {};
  return config.prompts[config.prompts.size() == 1 ? 0 : static_cast<std::size_t>(sequence)];
}

// Sequences [first, first + batch) through windows that overlap by half. Draws nothing twice: what a window has in
// common with the one before is its prompt.
bool draw_sliding(const Model& model, Context& ctx, const SampleConfig& config, std::int64_t first, std::int64_t batch,
                  Samples& out, const PositionsDone& progress) {
  const std::int64_t context = longest_window(model), begun = std::ssize(out.bytes);
  for (std::int64_t s = 0; s < batch; ++s) {
    out.bytes.push_back(prompt_of(config, first + s));
    out.log_probabilities.emplace_back();
  }
  const std::int64_t each = token_bytes(model);
  std::int64_t known = prompted(model, config), start = 0, read = 0;  // read: positions of the windows so far
  for (std::uint64_t window = 0; read < config.length; ++window) {
    if (window > 0) start = std::min(read - context / 2, config.length - context);
    SampleConfig part = config;
    part.count = batch;
    part.length = context;
    part.sampling.seed = seed_of_window(config.sampling.seed, window);
    part.prompts.clear();
    for (std::int64_t s = 0; s < batch; ++s) {
      const auto from = out.bytes[static_cast<std::size_t>(begun + s)].begin() + start * each;
      part.prompts.emplace_back(from, from + std::min(known - start, part.length) * each);
    }
    Samples drawn;
    const bool all = DrawnSequences(model, ctx, part, first, batch)
                         .run(
                             drawn, [&](std::int64_t positions) { return progress(std::max(read, start + positions)); },
                             read - start);
    for (std::int64_t s = 0; s < batch; ++s) {
      const auto row = static_cast<std::size_t>(begun + s), here = static_cast<std::size_t>(s);
      const std::vector<std::uint8_t>& bytes = drawn.bytes[here];
      const std::vector<float>& logs = drawn.log_probabilities[here];
      const std::int64_t old = std::min(read - start, std::ssize(logs)), end = start + std::ssize(logs);
      out.bytes[row].resize(static_cast<std::size_t>(std::max(known, end) * each));
      std::copy(bytes.begin(), bytes.end(), out.bytes[row].begin() + start * each);
      out.log_probabilities[row].insert(out.log_probabilities[row].end(), logs.begin() + old, logs.end());
      if (!all) out.bytes[row].resize(out.log_probabilities[row].size() * static_cast<std::size_t>(each));
    }
    if (!all) return false;
    read = start + context;
    known = std::max(known, read);
  }
  return true;
}

}  // namespace

std::int64_t longest_window(const Model& model) { return model.states().empty() ? model.context() : longest_sample; }

SampleMemory sample_memory(const Model& model, const Context& ctx, const SampleConfig& config) {
  Arena counting;
  Context planned = ctx;
  planned.arena = &counting;
  SampleConfig window = config;
  if (slides(model, config)) {
    window.length = longest_window(model);
    window.prompts = {std::vector<std::uint8_t>(static_cast<std::size_t>(window.length * token_bytes(model)))};
  }
  const std::int64_t batch = batch_of(ctx, config);
  SampleMemory memory = DrawnSequences(model, planned, window, 0, batch).plan();
  // A smaller last batch may use other kernels, which may take more memory.
  if (config.count % batch > 0)
    memory.total = DrawnSequences(model, planned, window, 0, config.count % batch).plan().total;
  return memory;
}

Samples sample(const Model& model, Context& ctx, const SampleConfig& config,
               const std::function<void(std::int64_t, std::int64_t)>& progress, const std::function<bool()>& stop) {
  LONGSTRIDE_CHECK(config.length > 0 && config.length <= longest_sample && prompted(model, config) <= config.length,
                   "{} bytes after a prompt of {} for a context of {}", config.length, prompted(model, config),
                   model.context());
  LONGSTRIDE_CHECK(config.prompts.size() <= 1 || static_cast<std::int64_t>(config.prompts.size()) == config.count,
                   "{} prompts for {} sequences", config.prompts.size(), config.count);
  for (const auto& p : config.prompts)
    LONGSTRIDE_CHECK(p.size() == config.prompts.front().size(), "prompts of {} and {} bytes", p.size(),
                     config.prompts.front().size());
  LONGSTRIDE_CHECK(!config.shown || config.count == 1, "{} sequences to show", config.count);
  Samples out;
  const std::int64_t batch = batch_of(ctx, config);
  for (std::int64_t first = 0; first < config.count && !out.abandoned; first += batch) {
    const std::int64_t now = std::min(batch, config.count - first);
    const auto told = [&](std::int64_t positions) {
      if (progress) progress(first * config.length + now * positions, config.count * config.length);
      return !stop || !stop();
    };
    out.abandoned = slides(model, config) ? !draw_sliding(model, ctx, config, first, now, out, told)
                                          : !DrawnSequences(model, ctx, config, first, now).run(out, told);
  }
  return out;
}

}  // namespace longstride
