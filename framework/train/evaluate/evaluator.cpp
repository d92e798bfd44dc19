#include "framework/train/evaluate/evaluator.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "framework/core/errors.h"
#include "framework/train/evaluate/window_scorer.h"
#include "framework/train/run/rounds.h"

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

// Keeps `most` windows: divides them into that many equal stretches and keeps the middle one of each.
void spread_out(std::vector<EvaluationWindow>& windows, std::int64_t most) {
  const auto count = static_cast<std::int64_t>(windows.size());
  if (most <= 0 || count <= most) return;
  for (std::int64_t i = 0; i < most; ++i)
    windows[static_cast<std::size_t>(i)] = windows[static_cast<std::size_t>((2 * i + 1) * count / (2 * most))];
  windows.resize(static_cast<std::size_t>(most));
}

// The standard error of the mean loss over the windows, which may have different lengths.
std::optional<double> standard_error(const std::vector<Scored>& windows, const Scored& all) {
  const auto count = static_cast<double>(windows.size());
  if (count < 2) return std::nullopt;
  double squares = 0;
  for (const Scored& window : windows) {
    const double d = window.sums.front() - all.loss() * window.weight;
    squares += d * d;
  }
  return std::sqrt(squares * count / (count - 1)) / all.weight;
}

// One element per window. Summed over the ranks, each element is that window's own score, so the total, added in window
// order, does not depend on which rank scored which window.
Scored total_of(std::vector<double>& scores, std::size_t sums, Communicator& comm) {
  if (!scores.empty()) comm.all_reduce_sum(scores.data(), std::ssize(scores));
  Scored all{std::vector<double>(sums, 0.0)};
  std::vector<Scored> windows;
  for (auto score = scores.begin(); score != scores.end(); score += static_cast<std::ptrdiff_t>(1 + sums)) {
    const Scored& window =
        windows.emplace_back(Scored{{score + 1, score + 1 + static_cast<std::ptrdiff_t>(sums)}, *score});
    for (std::size_t i = 0; i < sums; ++i) all.sums[i] += window.sums[i];
    all.weight += window.weight;
  }
  all.error = standard_error(windows, all);
  return all;
}

// Windows of one rank that can be scored together: equal lengths, at most `batch`.
std::size_t group_end(const std::vector<EvaluationWindow>& windows, const std::vector<std::size_t>& mine,
                      std::size_t begin, std::int64_t batch) {
  const std::size_t most = std::min(mine.size(), begin + static_cast<std::size_t>(batch));
  std::size_t end = begin + 1;
  while (end < most && windows[mine[end]].length == windows[mine[begin]].length) ++end;
  return end;
}

using WindowsDone = std::function<void(std::int64_t, std::int64_t)>;

// Every window by itself: this rank's are every `groups`-th.
void score_apart(WindowScorer& scorer, const std::vector<EvaluationWindow>& windows, std::int64_t batch, int group,
                 int groups, const WindowsDone& progress, Rounds& rounds) {
  std::vector<std::size_t> mine;
  for (auto w = static_cast<std::size_t>(group); w < windows.size(); w += static_cast<std::size_t>(groups))
    mine.push_back(w);
  std::size_t i = 0;
  do {
    if (i == mine.size()) continue;
    const std::size_t end = group_end(windows, mine, i, batch);
    std::vector<ScoredRow> rows;
    for (std::size_t k = i; k < end; ++k) rows.push_back({static_cast<std::int64_t>(mine[k])});
    scorer.score(rows, windows[mine[i]].length);
    if (progress) progress(static_cast<std::int64_t>(end), static_cast<std::int64_t>(mine.size()));
    i = end;
  } while (rounds.another(i < mine.size()));
}

// Windows that are read in order: the first ones only to be remembered, and from `scored` on to be scored.
struct WindowRun {
  std::int64_t begin, scored, end;

  std::int64_t size() const { return end - begin; }
};

WindowRun window_run(const std::vector<EvaluationWindow>& windows, std::int64_t stream,
                     const EvaluationConfig& config) {
  const std::int64_t count = std::ssize(windows), streams = std::min(config.streams, count),
                     scored = stream * count / streams;
  const auto start_of = [&](std::int64_t window) { return windows[static_cast<std::size_t>(window)].start; };
  std::int64_t begin = scored;  // every window before one that does not start its sequence is of the same
  while (start_of(begin) > 0 && start_of(scored) - start_of(begin) < config.lead) --begin;
  return {begin, scored, (stream + 1) * count / streams};
}

// The windows in order, as `config.streams` runs of consecutive ones. This rank has every `ranks`-th run, `batch` of
// them at a time.
void score_in_order(WindowScorer& scorer, const std::vector<EvaluationWindow>& windows, const EvaluationConfig& config,
                    Communicator& comm, const WindowsDone& progress, Rounds& rounds) {
  const std::int64_t streams = std::min(config.streams, std::ssize(windows));
  std::vector<WindowRun> mine;
  std::int64_t windows_of_mine = 0, done = 0;
  for (std::int64_t stream = comm.rank(); stream < streams; stream += comm.size()) {
    mine.push_back(window_run(windows, stream, config));
    windows_of_mine += mine.back().size();
  }
  auto first = mine.begin();
  std::int64_t i = 0;  // windows that these runs have read
  do {
    if (first == mine.end()) continue;
    const auto last = first + std::min<std::ptrdiff_t>(config.batch, mine.end() - first);
    std::int64_t longest = 0;
    std::vector<ScoredRow> rows;
    for (auto run = first; run != last; ++run) {
      longest = std::max(longest, run->size());
      const std::int64_t window = run->begin + i;
      const bool ended = window >= run->end;
      const auto starts = [&] { return i == 0 || windows[static_cast<std::size_t>(window)].start == 0; };
      rows.push_back(ended ? ScoredRow{} : ScoredRow{window, starts(), window >= run->scored});
      done += ended ? 0 : 1;
    }
    scorer.score(rows, config.context);
    if (progress) progress(done, windows_of_mine);
    if (++i == longest) first = last, i = 0;
  } while (rounds.another(first != mine.end()));
}

}  // namespace

std::int64_t evaluation_host_bytes(const Model& model, Device device, const EvaluationConfig& config) {
  return static_cast<std::int64_t>(HostSide::bytes_of(device, WindowScorer::host_bytes(model, config)));
}

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

std::int64_t longest_stream(const std::vector<EvaluationWindow>& windows, const EvaluationConfig& config) {
  std::int64_t longest = 0;
  for (std::int64_t stream = 0; stream < std::min(config.streams, std::ssize(windows)); ++stream)
    longest = std::max(longest, window_run(windows, stream, config).size());
  return longest * config.context;
}

std::size_t evaluation_bytes(const Model& model, const Context& ctx, const EvaluationConfig& config) {
  return WindowScorer::bytes(model, ctx, config);
}

EvaluationResult evaluate(const Model& model, const Objective& objective, Context& ctx, const SequenceSet& sequences,
                          const EvaluationConfig& config, Communicator& comm, const WindowsDone& progress,
                          const std::function<bool()>& stop) {
  const std::vector<EvaluationWindow> windows = evaluation_windows(sequences, config);
  const int ranks = ctx.sequence_ranks();
  LONGSTRIDE_CHECK(ranks == 1 || config.batch == 1, "{} windows at once on {} ranks", config.batch, ranks);
  WindowScorer scorer(model, objective, ctx, sequences, windows, config);
  Rounds rounds(comm, stop);
  EvaluationResult result;
  if (model.states().empty()) {
    score_apart(scorer, windows, config.batch, comm.rank() / ranks, comm.size() / ranks, progress, rounds);
  } else {
    LONGSTRIDE_CHECK(ranks == 1 && config.min_context == 0 && config.lead >= 0 && !config.spread && config.streams > 0,
                     "windows that are not in order for a model with states");
    score_in_order(scorer, windows, config, comm, progress, rounds);
  }
  result.abandoned = rounds.stopped();
  if (result.abandoned) return result;
  result.scored = total_of(scorer.scores(), objective.sums(), comm);
  result.scored.bytes_per_token = sequences.bytes_per_token();
  if (result.scored.weight > 0) result.figures = objective.figures(result.scored);
  for (const EvaluationWindow& window : windows) result.bytes += window.length - window.scored_from;
  result.losses = scorer.take_losses(comm);
  result.windows = std::ssize(windows);
  if (!model.states().empty()) result.streams = std::min(config.streams, result.windows);
  return result;
}

}  // namespace longstride
