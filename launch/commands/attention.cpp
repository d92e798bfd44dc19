// longstride attention RUN: the paper's figure 2 for a run: what individual heads attend to, drawn over held-out data.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "launch/commands/attention_picture.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/counter_line.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

struct AttentionOptions {
  std::string run, output, split = "test", data, checkpoint = "last", weights = "automatic";
  std::vector<std::int64_t> layers, heads, queries;
  std::int64_t input = 0;
  bool replace = false, json = false;
};

std::vector<std::uint8_t> read_input(const AttentionOptions& o, const LoadedRun& run) {
  const Recipe& recipe = run.recipe;
  const auto dataset = open_run_data(run, o.data, o.split);
  const auto set = dataset->split(o.split, recipe.data.cross_files);
  std::int64_t left = o.input;
  for (std::int64_t s = 0; s < set->sequences(); ++s) {
    const std::int64_t windows = set->length(s) / recipe.data.context;
    if (left < windows) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(recipe.data.context));
      set->read(s, left * recipe.data.context, recipe.data.context, bytes.data());
      return bytes;
    }
    left -= windows;
  }
  throw user_error("{}: '{}' has {} whole sequence(s) of {}; --input counts them from 0", dataset->path(), o.split,
                   o.input - left, recipe.data.context);
}

// All of `count`, or those given.
std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& asked, std::int64_t count, const char* what) {
  std::vector<std::int64_t> out = asked;
  for (std::int64_t i : asked)
    if (i >= count) throw user_error("--{} is {}, but the model has {}s 0 to {}", what, i, what, count - 1);
  for (std::int64_t i = 0; asked.empty() && i < count; ++i) out.push_back(i);
  return out;
}

// A quarter, half and seven eighths of the way, in the middle of a line.
std::vector<std::int64_t> chosen_queries(const AttentionOptions& o, const ModelConfig& model, std::int64_t stride) {
  const Geometry& g = model.geometry;
  const std::int64_t n = model.context, line = g.rows > 0 ? g.columns * g.channels : stride;
  for (std::int64_t query : o.queries)
    if (query >= n) throw user_error("--query is {}, but the sequence has positions 0 to {}", query, n - 1);
  if (!o.queries.empty()) return o.queries;
  std::vector<std::int64_t> out;
  for (std::int64_t eighths : {2, 4, 7}) out.push_back(std::min(n - 1, n * eighths / 8 / line * line + line / 2));
  return out;
}

// softmax(q_i k_j / sqrt(d)) over the keys that the pattern allows; 0 elsewhere.
std::vector<double> weights_of(const AttentionLayers& attention, std::int64_t layer, std::int64_t head,
                               std::int64_t query, const Tensor& queries, const Tensor& keys) {
  const std::int64_t size = queries.size(3);
  const float* q = queries.as<float>() + query * queries.stride(1) + head * queries.stride(2);
  std::vector<double> weights(static_cast<std::size_t>(query) + 1, -HUGE_VAL);
  double most = -HUGE_VAL;
  for (std::int64_t j = 0; j <= query; ++j) {
    if (!kernels::allowed(attention.pattern, layer, attention.heads, head, query, j)) continue;
    const float* k = keys.as<float>() + j * keys.stride(1) + head * keys.stride(2);
    double score = 0;
    for (std::int64_t c = 0; c < size; ++c) score += static_cast<double>(q[c]) * static_cast<double>(k[c]);
    most = std::max(most, weights[static_cast<std::size_t>(j)] = score / std::sqrt(static_cast<double>(size)));
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::isinf(w) ? 0 : std::exp(w - most);
  for (double& w : weights) w = sum > 0 ? w / sum : 0;
  return weights;
}

double entropy_bits(const std::vector<double>& weights) {
  double bits = 0;
  for (double w : weights)
    if (w > 0) bits -= w * std::log2(w);
  return bits;
}

class MapDrawing {
 public:
  MapDrawing(const AttentionOptions& options, const LoadedRun& run, const AttentionLayers& attention)
      : attention_(attention),
        folder_(options.output),
        bytes_(read_input(options, run)),
        view_{run.recipe.data.kind, run.recipe.model->geometry,
              strip_line(run.recipe.data.context, std::max<std::int64_t>(1, attention.pattern.stride)), bytes_},
        layers_(chosen(options.layers, attention.layers, "layer")),
        heads_(chosen(options.heads, attention.heads, "head")),
        queries_(chosen_queries(options, *run.recipe.model, attention.pattern.stride)) {}

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::size_t pictures() const { return made_.size(); }

  // The pictures of a layer and their sheet: one row per head, one column per query; wide strips are stacked.
  void draw(std::int64_t layer, const Tensor& queries, const Tensor& keys) {
    if (std::find(layers_.begin(), layers_.end(), layer) == layers_.end()) return;
    std::vector<Canvas> drawn;
    for (std::int64_t head : heads_)
      for (std::int64_t query : queries_) {
        const std::vector<double> weights = weights_of(attention_, layer, head, query, queries, keys);
        drawn.push_back(attention_picture(view_, weights, query));
        const std::string name = fmt::format("layer-{:03}-head-{:02}-query-{:06}.png", layer, head, query);
        drawn.back().write((folder_ / name).string());
        made_.push_back({{"file", name},
                         {"layer", layer},
                         {"head", head},
                         {"query", query},
                         {"entropy_bits", entropy_bits(weights)},
                         {"weight_of_start", weights.front()}});
      }
    constexpr std::int64_t widest_in_a_row = 600;  // pixels; wider strips are stacked
    const bool in_a_row = drawn.front().columns() <= widest_in_a_row;
    const std::string name = fmt::format("layer-{:03}.png", layer);
    contact_sheet(drawn, in_a_row ? static_cast<std::int64_t>(queries_.size()) : 1).write((folder_ / name).string());
    sheets_.push_back(
        {{"file", name}, {"layer", layer}, {"part", part_of(layer)}, {"heads", heads_}, {"queries", queries_}});
  }

  void write_index(std::int64_t step) const {
    const nlohmann::ordered_json out = {{"step", step}, {"sheets", sheets_}, {"pictures", made_}};
    write_file_atomically((folder_ / "attention.json").string(), out.dump(1) + "\n");
  }

 private:
  std::string part_of(std::int64_t layer) const {
    std::string out;
    for (kernels::PartKind part : kernels::parts_of(attention_.pattern, layer, attention_.heads, heads_.front()))
      out += (out.empty() ? "" : " and ") + std::string(kernels::name_of(part));
    return out;
  }

  AttentionLayers attention_;
  fs::path folder_;
  std::vector<std::uint8_t> bytes_;
  AttentionView view_;
  std::vector<std::int64_t> layers_, heads_, queries_;
  nlohmann::ordered_json made_ = nlohmann::ordered_json::array(), sheets_ = nlohmann::ordered_json::array();
};

void run_attention(AttentionOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  const LoadedRun run = load_run(o.run, o.weights, parse_checkpoint_choice(o.checkpoint));
  const auto& shown = required<ShowsAttention>(*run.model, "show what it attends to");
  const AttentionLayers attention = shown.attention();
  const std::string own = (fs::path(o.run) / "attention").string();
  if (o.output.empty()) o.output = own;
  MapDrawing drawing(o, run, attention);
  make_output_folder(o.output, o.replace || is_same_place(o.output, own), {});
  const Shape shape = {1, run.recipe.data.context};
  Arena counting;
  Context ctx;
  ctx.arena = &counting;
  CounterLine line("layer", false);
  const auto visit = [&](std::int64_t layer, const Tensor& queries, const Tensor& keys) {
    drawing.draw(layer, queries, keys);
    line.update(layer + 1, attention.layers);
  };
  shown.visit_attention(ctx, Tensor(nullptr, Dtype::u8, shape), visit);
  const Block memory(Device::cpu, counting.high_water());
  Arena arena(memory.data(), memory.bytes());
  ctx.arena = &arena;
  std::vector<std::uint8_t> tokens = drawing.bytes();
  shown.visit_attention(ctx, Tensor(tokens.data(), Dtype::u8, shape), visit);
  drawing.write_index(run.step);
  if (o.json)
    return print_json({{"output", o.output}, {"run", o.run}, {"step", run.step}, {"pictures", drawing.pictures()}});
  print_written(o.output, fmt::format("{} picture(s) of step {}, and a contact sheet per layer, layer-*.png",
                                      drawing.pictures(), run.step));
}

}  // namespace

void add_attention(CLI::App& app, Session& session) {
  auto o = std::make_shared<AttentionOptions>();
  CLI::App* attention =
      app.add_subcommand("attention", "Draw what individual heads attend to, over held-out data (on the CPU)");
  attention->add_option("run", o->run, "run directory")->required();
  attention->add_option("--layer", o->layers, "layers, from 0; default: all")->check(not_below_zero());
  attention->add_option("--head", o->heads, "heads, from 0; default: all")->check(not_below_zero());
  attention->add_option("--query", o->queries, "positions being generated; default: three")->check(not_below_zero());
  attention->add_option("--input", o->input, "which sequence of the split, from 0")->check(not_below_zero());
  attention->add_option("--split", o->split, "train, valid or test")->check(CLI::IsMember({"train", "valid", "test"}));
  attention->add_option("--data", o->data, "a prepared dataset other than the recipe's");
  attention->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  attention->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  attention->add_option("--output", o->output, "folder to write to; default: RUN/attention");
  attention->add_flag("--force", o->replace,
                      "write into a folder that holds files, and replace those of the same names");
  add_json_option(*attention, o->json);
  attention->callback([o, &session] { run_attention(*o, session); });
}

}  // namespace longstride
