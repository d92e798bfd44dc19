#include "framework/train/evaluate/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "framework/core/errors.h"

namespace longstride {
namespace {

void add_windows(std::int64_t sequence, std::int64_t length, const EvaluationConfig& config,
                 std::vector<EvaluationWindow>& out) {
  const std::int64_t n = config.context, m = config.min_context;
  std::int64_t scored = 0;  // bytes of this sequence already scored
  while (scored < length) {
    std::int64_t start = std::max<std::int64_t>(0, scored - m);
    if (m > 0) start = std::max<std::int64_t>(0, std::min(start, length - n));
    const std::int64_t end = std::min(start + n, length);
    out.push_back({sequence, start, end - start, scored - start});
    scored = end;
  }
}

// Keeps `most` of the windows: the middle one of each of as many equal stretches.
void spread_out(std::vector<EvaluationWindow>& windows, std::int64_t most) {
  const auto count = static_cast<std::int64_t>(windows.size());
  if (most <= 0 || count <= most) return;
  for (std::int64_t i = 0; i < most; ++i)
    windows[static_cast<std::size_t>(i)] = windows[static_cast<std::size_t>((2 * i + 1) * count / (2 * most))];
  windows.resize(static_cast<std::size_t>(most));
}

// Of nats / bytes, with windows as the sample: they may have different lengths.
double standard_error(const std::vector<EvaluationWindow>& windows, const std::vector<double>& nats,
                      const EvaluationResult& result) {
  const auto count = static_cast<double>(windows.size());
  if (count < 2) return 0;
  double squares = 0;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const double d = nats[w] - result.loss() * static_cast<double>(windows[w].length - windows[w].scored_from);
    squares += d * d;
  }
  return std::sqrt(squares * count / (count - 1)) / static_cast<double>(result.bytes) / std::numbers::ln2;
}

// Windows of one rank that can be scored together: equal lengths, at most `batch`.
std::int64_t group_end(const std::vector<EvaluationWindow>& windows, const std::vector<std::int64_t>& mine,
                       std::int64_t begin, std::int64_t batch) {
  std::int64_t end = begin + 1;
  const auto length = [&](std::int64_t i) {
    return windows[static_cast<std::size_t>(mine[static_cast<std::size_t>(i)])].length;
  };
  while (end < static_cast<std::int64_t>(mine.size()) && end - begin < batch && length(end) == length(begin)) ++end;
  return end;
}

int ranks_of_group(const Context& ctx) { return ctx.group == nullptr ? 1 : ctx.group->size(); }

// Where the host writes the tokens of a group and reads its losses: the tensors themselves on the CPU, pinned memory in
// between with a GPU.
class Exchange {
 public:
  Exchange(const Context& ctx, const EvaluationConfig& config) : ctx_(ctx), most_(config.batch * config.context) {
    if (ctx.device == Device::cuda) pinned_.emplace(static_cast<std::size_t>(exchange_bytes(ctx.device, config)));
  }
  std::uint8_t* tokens(const Tensor& of) const {
    return pinned_ ? reinterpret_cast<std::uint8_t*>(pinned_->data() + losses_bytes()) : of.as<std::uint8_t>();
  }
  void send(const Tensor& to) const {
    if (pinned_) copy_to_device(to.data(), tokens(to), to.bytes(), ctx_.launch.stream);
  }
  const void* receive(const Tensor& losses) const {
    if (!pinned_) return losses.data();
    copy_to_host(pinned_->data(), losses.data(), losses.bytes(), ctx_.launch.stream);
    synchronize(ctx_.launch.stream);
    return pinned_->data();
  }

 private:
  std::size_t losses_bytes() const { return static_cast<std::size_t>(most_) * sizeof(float); }
  const Context& ctx_;
  std::int64_t most_;
  std::optional<PinnedMemory> pinned_;
};

}  // namespace

std::int64_t exchange_bytes(Device device, const EvaluationConfig& config) {
  const auto position = static_cast<std::int64_t>(sizeof(float) + sizeof(std::uint8_t));
  return device == Device::cpu ? 0 : config.batch * config.context * position;
}

double EvaluationResult::bits_per_byte() const { return loss() / std::numbers::ln2; }

std::vector<EvaluationWindow> evaluation_windows(const SequenceSet& sequences, const EvaluationConfig& config) {
  LONGSTRIDE_CHECK(config.context > 0 && config.min_context >= 0 && config.min_context < config.context,
                   "min_context {} of {}", config.min_context, config.context);
  std::vector<EvaluationWindow> windows;
  for (std::int64_t s = 0; s < sequences.sequences(); ++s) {
    add_windows(s, sequences.length(s), config, windows);
    if (config.max_windows > 0 && !config.spread && static_cast<std::int64_t>(windows.size()) >= config.max_windows) {
      windows.resize(static_cast<std::size_t>(config.max_windows));
      break;
    }
  }
  if (config.spread) spread_out(windows, config.max_windows);
  return windows;
}

std::size_t evaluation_bytes(const Model& model, const Context& ctx, const EvaluationConfig& config) {
  Arena counting;
  Context planned = ctx;
  planned.arena = &counting;
  Scratch scratch(planned);
  const Shape shape = {config.batch, config.context};
  const Tensor tokens = scratch.tensor(shape, Dtype::u8);
  const Tensor losses = scratch.tensor({config.batch, config.context / ranks_of_group(ctx)}, ctx.residual);
  model.losses(planned, tokens, losses);
  return counting.high_water();
}

EvaluationResult evaluate(const Model& model, Context& ctx, const SequenceSet& sequences,
                          const EvaluationConfig& config, Communicator& comm,
                          const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::vector<EvaluationWindow> windows = evaluation_windows(sequences, config);
  const int ranks = ranks_of_group(ctx), index = ctx.group == nullptr ? 0 : ctx.group->index();
  LONGSTRIDE_CHECK(ranks == 1 || config.batch == 1, "{} windows at once on {} ranks", config.batch, ranks);
  std::vector<std::int64_t> mine;
  for (std::int64_t w = comm.rank() / ranks; w < static_cast<std::int64_t>(windows.size()); w += comm.size() / ranks)
    mine.push_back(w);
  // One slot a window: summed over the ranks each slot is that window's own figure, so the total, added in the
  // windows' order, does not depend on who scored what.
  std::vector<double> nats(windows.size(), 0.0);
  const Exchange exchange(ctx, config);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(mine.size());) {
    const std::int64_t end = group_end(windows, mine, i, config.batch);
    const EvaluationWindow& first = windows[static_cast<std::size_t>(mine[static_cast<std::size_t>(i)])];
    Scratch scratch(ctx);
    // The ranks of a group have equal runs: what fills a window up comes last, where nothing that counts attends to it.
    const std::int64_t run = (first.length + ranks - 1) / ranks;
    const Tensor tokens = scratch.tensor({end - i, run * ranks}, Dtype::u8);
    const Tensor losses = scratch.tensor({end - i, run}, ctx.residual);
    if (run * ranks > first.length) std::memset(exchange.tokens(tokens), 0, tokens.bytes());
    for (std::int64_t r = i; r < end; ++r) {
      const EvaluationWindow& w = windows[static_cast<std::size_t>(mine[static_cast<std::size_t>(r)])];
      sequences.read(w.sequence, w.start, w.length, exchange.tokens(tokens) + (r - i) * w.length);
    }
    exchange.send(tokens);
    model.losses(ctx, tokens, losses);
    const void* scored = exchange.receive(losses);
    kernels::with_float_type(losses.dtype(), [&](auto zero) {
      for (std::int64_t r = i; r < end; ++r) {
        const auto window = static_cast<std::size_t>(mine[static_cast<std::size_t>(r)]);
        const auto* row = static_cast<const decltype(zero)*>(scored) + (r - i) * run;
        const std::int64_t begin = std::max(windows[window].scored_from, index * run);
        for (std::int64_t t = begin; t < std::min(first.length, (index + 1) * run); ++t)
          nats[window] += static_cast<double>(row[t - index * run]);
      }
    });
    i = end;
    if (progress) progress(i, static_cast<std::int64_t>(mine.size()));
  }
  if (!nats.empty()) comm.all_reduce_sum(nats.data(), static_cast<std::int64_t>(nats.size()));
  EvaluationResult result;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    result.nats += nats[w];
    result.bytes += windows[w].length - windows[w].scored_from;
  }
  result.standard_error = standard_error(windows, nats, result);
  return result;
}

}  // namespace longstride
