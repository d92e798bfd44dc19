#include "framework/mixers/side_by_side.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride {
namespace {

struct SideBySideCache : BranchCache {
  std::vector<std::unique_ptr<BranchCache>> parts;

  static BranchCache* of(BranchCache* cache, std::size_t part) {
    return static_cast<SideBySideCache&>(*cache).parts[part].get();
  }
};

}  // namespace

// Every part but the last adds to what the ones before gave, in scratch; the last one, where the layer's output goes.
template <class Run>
void SideBySide::add_up(Context& ctx, const Tensor& normed, const BranchOutput& out, const Run& run) const {
  if (!out.given()) {
    for (std::size_t i = 0; i < parts_.size(); ++i) run(i, BranchOutput());
    return;
  }
  Scratch scratch(ctx);
  Tensor sum;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool last = i + 1 == parts_.size();
    const Tensor next = last ? Tensor{} : scratch.tensor(normed.shape(), ctx.compute);
    run(i, BranchOutput([&, before = sum] { return BranchOutput::Place{last ? out.place().to : next, before}; }));
    sum = next;
  }
}

void SideBySide::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  add_up(ctx, normed, out, [&](std::size_t i, const BranchOutput& own) { parts_[i]->forward(ctx, normed, own, tape); });
}

int SideBySide::kept_results() const {
  int sum = 0;
  for (const auto& part : parts_) sum += part->kept_results();
  return sum;
}

void SideBySide::forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const {
  add_up(ctx, normed, out,
         [&](std::size_t i, const BranchOutput& own) { parts_[i]->forward_keeping(ctx, normed, own, tape); });
}

void SideBySide::forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                               Tape& tape) const {
  auto next = kept.begin();
  add_up(ctx, normed, out, [&](std::size_t i, const BranchOutput& own) {
    const auto first = next;
    next += parts_[i]->kept_results();
    parts_[i]->forward_again(ctx, normed, own, KeptResults(first, next), tape);
  });
}

// In the reverse order of what is on the tape. dnormed may be dout, so the first part, whose turn is last, writes it.
void SideBySide::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  Scratch scratch(ctx);
  Tensor sum;
  for (std::size_t i = parts_.size(); i-- > 1;) {
    const Tensor own = scratch.like(dnormed);
    parts_[i]->backward(ctx, dout, own, tape);
    if (sum.given()) ops::run(ctx, kernels::AddArgs{.from = sum, .to = own});
    sum = own;
  }
  parts_.front()->backward(ctx, dout, dnormed, tape);
  ops::run(ctx, kernels::AddArgs{.from = sum, .to = dnormed});
}

std::unique_ptr<BranchCache> SideBySide::make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                    std::int64_t positions) const {
  auto cache = std::make_unique<SideBySideCache>();
  for (const auto& part : parts_) cache->parts.push_back(part->make_cache(ctx, memory, batch, positions));
  return cache;
}

void SideBySide::decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
                        std::int64_t position) const {
  parts_.front()->decode(ctx, normed, out, SideBySideCache::of(cache, 0), position);
  Scratch scratch(ctx);
  const Tensor own = scratch.like(out);
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    parts_[i]->decode(ctx, normed, own, SideBySideCache::of(cache, i), position);
    ops::run(ctx, kernels::AddArgs{.from = own, .to = out});
  }
}

bool SideBySide::decodes_several() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->decodes_several(); });
}

void SideBySide::begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i]->begin_position(ctx, SideBySideCache::of(cache, i), position);
}

std::int64_t SideBySide::heads() const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->heads();
  return sum;
}

SideBySide::Head SideBySide::at(std::int64_t head) const {
  for (const auto& part : parts_) {
    if (head < part->heads()) return {*part, head};
    head -= part->heads();
  }
  LONGSTRIDE_CHECK(false, "there are {} heads", heads());
}

std::string SideBySide::kind(std::int64_t head) const {
  const Head own = at(head);
  return own.part.kind(own.head);
}

KeyRows SideBySide::key_rows() const {
  KeyRows widest = parts_.front()->key_rows();
  for (const auto& part : parts_)
    if (const KeyRows rows = part->key_rows(); rows.all() > widest.all()) widest = rows;
  return widest;
}

std::int64_t SideBySide::stride() const {
  std::int64_t stride = parts_.front()->stride();
  for (const auto& part : parts_) stride = part->stride() == stride ? stride : 0;
  return stride;
}

PairCost SideBySide::cost(std::int64_t positions) const {
  PairCost sum;
  for (const auto& part : parts_) {
    const PairCost one = part->cost(positions);
    sum.pairs += one.pairs;
    sum.dense_pairs += one.dense_pairs;
    sum.training_flops += one.training_flops;
    sum.forward_flops += one.forward_flops;
    sum.backward_flops += one.backward_flops;
  }
  return sum;
}

Mixer::PairWeight SideBySide::pair_weight(std::int64_t head, double span) const {
  const Head own = at(head);
  return [weight = own.part.pair_weight(own.head, span), missing = rows_before(own.part)](
             std::int64_t query, std::int64_t key) { return key < missing ? 0.0 : weight(query, key - missing); };
}

void SideBySide::show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                                    const SeeProbabilities& see) const {
  std::vector<std::vector<std::vector<double>>> all(queries.size());
  for (const auto& part : parts_)
    part->show_probabilities(ctx, normed, queries, [&](std::size_t n, const auto& heads) {
      for (const std::vector<double>& head : heads) {
        all[n].emplace_back(static_cast<std::size_t>(rows_before(*part)), 0.0);
        all[n].back().insert(all[n].back().end(), head.begin(), head.end());
      }
    });
  for (std::size_t n = 0; n < queries.size() && !ctx.planning(); ++n) see(n, all[n]);
}

// Absent if it is of every part. Otherwise the share of pairs says what a part sees.
std::optional<double> SideBySide::mean_keys(double span) const {
  double sum = 0;
  bool any = false;
  for (const auto& part : parts_) {
    const std::int64_t segment = part->key_rows().segment;
    const std::optional<double> own = part->mean_keys(span);
    any |= own.has_value();
    sum += own ? *own * static_cast<double>(part->heads()) : part->cost(segment).pairs / static_cast<double>(segment);
  }
  return any ? std::optional(sum / static_cast<double>(heads())) : std::nullopt;
}

void SideBySide::extend(Reach& reach) const {
  const Reach below = reach;
  for (const auto& part : parts_) {
    Reach own = below;
    part->extend(own);
    for (std::int64_t i = 0; i < reach.segment(); ++i) reach.lower(i, own.earliest_of(i));
  }
}

std::int64_t SideBySide::remembered_positions() const {
  std::int64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, part->remembered_positions());
  return most;
}

bool SideBySide::remembers_without_end() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->remembers_without_end(); });
}

HeadSpans SideBySide::spans() const {
  std::int64_t first = 0;
  for (const auto& part : parts_) {
    HeadSpans spans = part->spans();
    spans.first_head += first;
    if (spans.learned()) return spans;
    first += part->heads();
  }
  return {};
}

void SideBySide::add_parameter_losses(Context& ctx) const {
  for (const auto& part : parts_) part->add_parameter_losses(ctx);
}

std::string SideBySide::first_given(const std::function<std::string(const Mixer&)>& text) const {
  for (const auto& part : parts_)
    if (std::string found = text(*part); !found.empty()) return found;
  return "";
}

std::string SideBySide::slow(std::int64_t positions) const {
  return first_given([&](const Mixer& part) { return part.slow(positions); });
}

std::string SideBySide::state() const {
  return first_given([](const Mixer& part) { return part.state(); });
}

std::string SideBySide::problem_of_probabilities() const {
  return first_given([](const Mixer& part) { return part.problem_of_probabilities(); });
}

std::string SideBySide::problem_on_gpu() const {
  return first_given([](const Mixer& part) { return part.problem_on_gpu(); });
}

std::string SideBySide::problem_of_ranks(int ranks) const {
  return first_given([&](const Mixer& part) { return part.problem_of_ranks(ranks); });
}

std::string SideBySide::summary() const {
  std::string out;
  for (const auto& part : parts_) out += (out.empty() ? "" : " next to ") + part->summary();
  return out;
}

std::vector<MixerBench> SideBySide::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                          std::int64_t positions) const {
  std::vector<MixerBench> all;
  for (const auto& part : parts_)
    for (MixerBench& one : part->bench(ctx, scratch, batch, positions)) all.push_back(std::move(one));
  return all;
}

}  // namespace longstride
