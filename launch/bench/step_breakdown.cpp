#include "launch/bench/step_breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "framework/models/mixes_positions.h"

namespace longstride {
namespace {

using kernels::WorkKind;

constexpr std::array<const char*, kernels::works> names = {"products, with what is fused",
                                                           "attention, forward",
                                                           "attention, backward",
                                                           "normalise, residual, dropout",
                                                           "gelu",
                                                           "bias gradients",
                                                           "embedding",
                                                           "loss head",
                                                           "optimizer",
                                                           "operands to fp8",
                                                           "fills and copies"};

// Adds the operations of mixers that depend on their pairs, so that the ops cannot count them.
void add_attention_operations(const Model& model, std::int64_t micro, const Ceilings& ceilings,
                              std::vector<StepMeter::Line>& lines) {
  const auto* mixes = capability<MixesPositions>(model);
  if (mixes == nullptr) return;
  double forward = 0, backward = 0, layers = 0;
  for (std::int64_t layer = 0; layer < mixes->layers(); ++layer) {
    const PairCost cost = mixes->mixer(layer).cost(model.context());
    forward += cost.forward_flops;
    backward += cost.backward_flops;
    layers += cost.forward_flops > 0 ? 1 : 0;
  }
  if (layers < static_cast<double>(mixes->layers())) return;  // the ranges of others count for themselves
  for (const WorkKind work : {WorkKind::attention_forward, WorkKind::attention_backward}) {
    StepMeter::Line& line = lines[static_cast<std::size_t>(work)];
    const double passes = static_cast<double>(line.ranges) / layers;
    line.operations = passes * static_cast<double>(micro) * (work == WorkKind::attention_forward ? forward : backward);
    line.operations_ms = 1e3 * line.operations / ceilings.flops_per_second;
    line.floor_ms = std::max(line.floor_ms, line.operations_ms);
  }
}

}  // namespace

void StepMeter::begin(const kernels::Cost& cost) {
  if (depth_++ > 0) return;
  if (used_ == ranges_.size()) ranges_.push_back(std::make_unique<Range>());
  ranges_[used_]->cost = cost;
  ranges_[used_]->begin.record(queue_);
}

void StepMeter::end() {
  if (--depth_ > 0) return;
  ranges_[used_++]->end.record(queue_);
}

std::vector<StepMeter::Line> StepMeter::lines(const Ceilings& ceilings) const {
  std::vector<Line> lines(kernels::works);
  for (std::size_t i = 0; i < used_; ++i) {
    const Range& range = *ranges_[i];
    range.end.wait();
    Line& line = lines[static_cast<std::size_t>(range.cost.work)];
    ++line.ranges;
    line.ms += range.end.milliseconds_since(range.begin);
    line.bytes += range.cost.bytes;
    line.operations += range.cost.operations;
    const double operations_ms = 1e3 * range.cost.operations / (range.cost.speed * ceilings.flops_per_second);
    line.operations_ms += operations_ms;
    line.floor_ms += std::max(1e3 * range.cost.bytes / ceilings.bytes_per_second, operations_ms);
  }
  return lines;
}

nlohmann::ordered_json step_breakdown(TrainingStep& step, const std::uint8_t* rows, const Model& model,
                                      const Ceilings& ceilings, double milliseconds) {
  StepMeter meter(step.queue());
  step.context().launch.meter = &meter;
  step.run(rows);
  meter.forget();
  step.run(rows);
  step.report();
  step.context().launch.meter = nullptr;

  std::vector<StepMeter::Line> lines = meter.lines(ceilings);
  add_attention_operations(model, step.batching().micro, ceilings, lines);
  double sum = 0;
  for (const StepMeter::Line& line : lines) sum += line.ms;
  const double scale = sum > milliseconds ? milliseconds / sum : 1;
  nlohmann::ordered_json out = {{"kernel_by_kernel_ms", sum},
                                {"scale", scale},
                                {"copy_bytes_per_second", ceilings.bytes_per_second},
                                {"product_flops_per_second", ceilings.flops_per_second},
                                {"between_ms", milliseconds - scale * sum},
                                {"lines", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const StepMeter::Line& l = lines[i];
    if (l.ranges == 0) continue;
    const bool bytes = 1e3 * l.bytes / ceilings.bytes_per_second >= l.operations_ms;
    out["lines"].push_back({{"name", names[i]},
                            {"ranges", l.ranges},
                            {"ms", scale * l.ms},
                            {"share", scale * l.ms / milliseconds},
                            {"bytes", l.bytes},
                            {"flops", l.operations},
                            {"floor_ms", l.floor_ms},
                            {"bound", bytes ? "bytes" : "operations"}});
  }
  return out;
}

void print_breakdown(const nlohmann::ordered_json& b) {
  fmt::print("{:<30}{:>8}{:>10}{:>8}{:>10}{:>8}{:>10}{:>8}  {}\n", "where the step's time goes", "ranges", "ms",
             "share", "TFLOP/s", "TB/s", "bound ms", "bound", "bound by");
  double ms = 0, share = 0, floor = 0;
  for (const auto& l : b.at("lines")) {
    const double here = l.at("ms").get<double>(), least = l.at("floor_ms").get<double>();
    fmt::print("{:<30}{:>8}{:>10.3f}{:>7.1f}%{:>10.1f}{:>8.2f}{:>10.3f}{:>7.0f}%  {}\n",
               l.at("name").get<std::string>(), l.at("ranges").get<int>(), here, 100 * l.at("share").get<double>(),
               l.at("flops").get<double>() / here / 1e9, l.at("bytes").get<double>() / here / 1e9, least,
               100 * least / here, l.at("bound").get<std::string>());
    ms += here;
    share += l.at("share").get<double>();
    floor += least;
  }
  const double between = b.at("between_ms").get<double>(), total = ms + between;
  fmt::print("{:<30}{:>8}{:>10.3f}{:>7.1f}%\n", "between kernels", "", between, 100 * between / total);
  fmt::print("{:<30}{:>8}{:>10.3f}{:>7.1f}%{:>10}{:>8}{:>10.3f}{:>7.0f}%\n", "the step", "", total,
             100 * (share + between / total), "", "", floor, 100 * floor / total);
  fmt::print("Kernel by kernel the step takes {:.3f} ms{}; copy {:.2f} TB/s, product {:.0f} TFLOP/s in this run.\n",
             b.at("kernel_by_kernel_ms").get<double>(),
             b.at("scale").get<double>() < 1 ? ", scaled to the graph's step" : "",
             b.at("copy_bytes_per_second").get<double>() / 1e12, b.at("product_flops_per_second").get<double>() / 1e12);
}

}  // namespace longstride
