// longstride attention RUN: the paper's figure 2 for a run: what individual heads attend to, drawn over held-out data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "datasets/dataset.h"
#include "datasets/formats/pictures/picture.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/numbers.h"
#include "framework/train/attention_maps.h"
#include "launch/commands/attention_picture.h"
#include "launch/commands/commands.h"
#include "launch/commands/memory_facts.h"
#include "launch/console/arguments.h"
#include "launch/console/counter_line.h"
#include "launch/console/device_option.h"
#include "launch/console/host_share.h"
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
  std::int64_t input = 0, before = -1;  // before: -1: as many as matter
  bool replace = false, json = false;
};

// The window that is shown, and the windows before it that the model reads first.
struct Input {
  ShownText text;
  std::int64_t before = 0;  // windows

  // Texts of the positions from the first of all windows on; none where no tokens are.
  std::vector<std::string> pieces = {};

  // The bytes of the window as pictures show them, and the last ones before it, at most `most`. A token is shown by the
  // first byte of its text that is no space.
  std::vector<std::uint8_t> shown(std::int64_t context) const { return bytes(before * context, context); }
  std::vector<std::uint8_t> last_before(std::int64_t context, std::int64_t most) const {
    const std::int64_t count = std::min(before * context, most);
    return bytes(before * context - count, count);
  }

 private:
  std::vector<std::uint8_t> bytes(std::int64_t first, std::int64_t count) const {
    if (pieces.empty()) return {text.windows.begin() + first, text.windows.begin() + first + count};
    std::vector<std::uint8_t> out;
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::string& piece = pieces[static_cast<std::size_t>(i)];
      const std::size_t at = piece.find_first_not_of(' ');
      out.push_back(static_cast<std::uint8_t>(at == std::string::npos ? ' ' : piece[at]));
    }
    return out;
  }
};

// The texts of a window's tokens, if they are no bytes.
std::vector<std::string> pieces_of(const LoadedRun& run, const ShownText& text) {
  const RunTokens tokens = run.tokens();
  if (tokens.is_of_bytes()) return {};
  const kernels::Ids ids{text.windows.data(), text.wide};
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < std::ssize(text.windows) / tokens.token_bytes(); ++i) {
    out.push_back(tokens.text(ids[i]));
    if (tokens.model().empty()) out.back().pop_back();  // the space behind a number
  }
  return out;
}

Input read_input(const AttentionOptions& o, const LoadedRun& run) {
  const std::int64_t context = run.recipe.data.context;
  const auto dataset = open_run_data(run, o.data, o.split);
  const auto set = dataset->split(o.split, run.recipe.data);
  if (o.before >= 0 && run.model->states().empty())
    throw user_error("--before is {}, but this model remembers nothing of the text before its context; leave it out",
                     o.before);
  std::int64_t left = o.input;
  for (std::int64_t s = 0; s < set->sequences(); ++s) {
    const std::int64_t windows = set->length(s) / context;
    if (left < windows) {
      Input in;
      in.before = std::min(left, o.before >= 0 ? o.before : windows_that_matter(*run.model));
      in.text.wide = set->token_bytes() > 1;
      in.text.windows.resize(static_cast<std::size_t>((in.before + 1) * context * set->token_bytes()));
      in.text.offset = (left - in.before) * context;
      in.text.seed = run.recipe.train.seed;
      in.text.trained = run.step;
      set->read(s, in.text.offset, (in.before + 1) * context, in.text.windows.data());
      in.pieces = pieces_of(run, in.text);
      const std::span<const std::int64_t> documents = set->documents(s);
      in.text.documents.assign(documents.begin(), documents.end());
      const RowEnds groups = set->groups(s);
      in.text.groups.assign(groups.boundaries.begin(), groups.boundaries.end());
      in.text.groups_offset = groups.offset;
      return in;
    }
    left -= windows;
  }
  const std::int64_t whole = o.input - left;
  if (whole == 0)
    throw user_error("{}: the split '{}' has no whole sequence of {} {}s to show; choose another with --split",
                     dataset->path(), o.split, context, run.tokens().unit());
  throw user_error("{}: '{}' has {} of {} {}s; --input counts them from 0", dataset->path(), o.split,
                   counted(whole, "whole sequence"), context, run.tokens().unit());
}

// All of `count`, or those given.
std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& asked, std::int64_t count, const char* what) {
  std::vector<std::int64_t> out = asked;
  for (std::int64_t i : asked)
    if (i >= count) throw user_error("--{} is {}, but the model has {}s 0 to {}", what, i, what, count - 1);
  for (std::int64_t i = 0; asked.empty() && i < count; ++i) out.push_back(i);
  return out;
}

// The layers asked for, or all whose heads have probabilities.
std::vector<std::int64_t> chosen_layers(const AttentionOptions& o, const MixesPositions& model) {
  std::vector<std::int64_t> out;
  std::string problem;
  for (const std::int64_t layer : chosen(o.layers, model.layers(), "layer")) {
    if (const std::string own = model.mixer(layer).problem_of_probabilities(); own.empty())
      out.push_back(layer);
    else if (problem.empty())
      problem = fmt::format("layer {}: {}", layer, own);
  }
  if (!problem.empty() && (!o.layers.empty() || out.empty()))
    throw user_error("{}; {}", problem,
                     out.empty() && o.layers.empty() ? "no layer can be shown" : "choose others with --layer");
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

double entropy_bits(const std::vector<double>& weights) {
  double bits = 0;
  for (double w : weights)
    if (w > 0) bits -= w * std::log2(w);
  return bits;
}

double sum_of(const std::vector<double>& weights, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t j = begin; j < end; ++j) sum += weights[static_cast<std::size_t>(j)];
  return sum;
}

KeyRows widest_key_rows(const MixesPositions& model) {
  KeyRows widest = model.mixer(0).key_rows();
  for (std::int64_t layer = 1; layer < model.layers(); ++layer)
    if (const KeyRows rows = model.mixer(layer).key_rows(); rows.all() > widest.all()) widest = rows;
  return widest;
}

// Layers may have several numbers of heads.
std::int64_t fewest_heads(const MixesPositions& model) {
  std::int64_t fewest = model.mixer(0).heads();
  for (std::int64_t layer = 1; layer < model.layers(); ++layer) fewest = std::min(fewest, model.mixer(layer).heads());
  return fewest;
}

class MapDrawing {
 public:
  MapDrawing(const AttentionOptions& options, const LoadedRun& run, const MixesPositions& shown)
      : shown_(shown),
        keys_(widest_key_rows(shown)),
        folder_(options.output),
        input_(read_input(options, run)),
        bytes_(input_.shown(run.recipe.data.context)),
        layers_(chosen_layers(options, shown)),
        heads_(chosen(options.heads, fewest_heads(shown), "head")),
        queries_(chosen_queries(options, *run.recipe.model, stride())),
        view_{run.recipe.data.kind,
              run.recipe.model->geometry,
              strip_line(keys_, stride()),
              bytes_,
              keys_,
              input_.last_before(run.recipe.data.context, keys_.memory + 1)} {
    fit_sheet();
  }

  const Input& input() const { return input_; }
  const std::vector<std::int64_t>& queries() const { return queries_; }
  std::int64_t layers() const { return shown_.layers(); }
  std::size_t pictures() const { return made_.size(); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto* written : {&made_, &sheets_})
      for (const auto& entry : *written) names.insert(entry.at("file").get<std::string>());
    return names;
  }

  // The pictures of a layer and their sheet: one row per head, one column per query; wide strips are stacked.
  void draw(std::int64_t layer, const MixesPositions::Probabilities& probabilities) {
    if (std::find(layers_.begin(), layers_.end(), layer) == layers_.end()) return;
    std::vector<Canvas> drawn;
    AttentionView view = view_;
    view.keys = shown_.mixer(layer).key_rows();
    for (std::int64_t head : heads_)
      for (std::size_t n = 0; n < queries_.size(); ++n) {
        const std::vector<double>& weights = probabilities[n][static_cast<std::size_t>(head)];
        drawn.push_back(attention_picture(view, weights, queries_[n]));
        const std::string name = fmt::format("layer-{:03}-head-{:02}-query-{:06}.png", layer, head, queries_[n]);
        drawn.back().write((folder_ / name).string());
        made_.push_back({{"file", name},
                         {"layer", layer},
                         {"head", head},
                         {"query", queries_[n]},
                         {"entropy_bits", entropy_bits(weights)}});
        describe_weights(view.keys, weights, made_.back());
        if (!input_.pieces.empty()) describe_pieces(view.keys, weights, made_.back());
      }
    const std::string name = fmt::format("layer-{:03}.png", layer);
    contact_sheet(drawn, across(drawn.front())).write((folder_ / name).string());
    sheets_.push_back({{"file", name},
                       {"layer", layer},
                       {"part", shown_.mixer(layer).kind(heads_.front())},
                       {"heads", heads_},
                       {"queries", queries_}});
  }

  void write_index(std::int64_t step) const {
    nlohmann::ordered_json out = {{"step", step}};
    if (keys_.before() > 0) {
      out["key_rows"] = as_json(keys_);
      out["windows_before"] = input_.before;
    }
    out["sheets"] = sheets_;
    out["pictures"] = made_;
    write_file_atomically((folder_ / "attention.json").string(),
                          out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

 private:
  std::int64_t stride() const { return std::max<std::int64_t>(1, shown_.mixer(0).stride()); }
  std::int64_t across(const Canvas& picture) const {
    constexpr std::int64_t widest_in_a_row = 600;  // pixels; wider strips are stacked
    return picture.columns() <= widest_in_a_row ? std::ssize(queries_) : 1;
  }

  // Makes the lines of strips longer until a PNG holds all pictures of a layer. UserError, before anything is computed
  // or written, if it never does.
  void fit_sheet() {
    const std::vector<double> none(static_cast<std::size_t>(keys_.all()), 0.0);
    for (;; view_.lines *= 2) {
      const Canvas picture = attention_picture(view_, none, queries_.front());
      const std::int64_t pixels = pixels_of_sheet(picture, std::ssize(heads_) * std::ssize(queries_), across(picture));
      if (pixels <= static_cast<std::int64_t>(most_picture_pixels)) return;
      if (view_.lines >= keys_.all())
        throw user_error(
            "{} heads and {} queries make a contact sheet of {} pixels, but a PNG can have {}; choose fewer with "
            "--head or --query",
            heads_.size(), queries_.size(), thousands(pixels), thousands(most_picture_pixels));
    }
  }

  // The start vector is read where a stream starts, by the segment's first row.
  void describe_weights(const KeyRows& k, const std::vector<double>& weights, nlohmann::ordered_json& out) const {
    if (input_.before == 0) out["weight_of_start"] = weights[static_cast<std::size_t>(k.before())];
    if (k.compressed > 0) out["weight_of_compressed_memory"] = sum_of(weights, 0, k.compressed);
    if (k.memory > 0) out["weight_of_memory"] = sum_of(weights, k.compressed, k.compressed + k.memory);
    if (k.added > 0) out["weight_of_added_rows"] = sum_of(weights, k.compressed + k.memory, k.before());
  }

  // The token being generated, and those that it attends to most: positions of the context, before it below 0. The rows
  // of compressed memory and the start have no token.
  void describe_pieces(const KeyRows& k, const std::vector<double>& weights, nlohmann::ordered_json& out) const {
    constexpr std::size_t most = 8;
    const std::int64_t first = input_.before * std::ssize(bytes_);  // the window's, among the pieces
    const auto piece = [&](std::int64_t position) { return input_.pieces[static_cast<std::size_t>(first + position)]; };
    const auto position = [&](std::int64_t row) { return row - k.before() - (k.added > 0 ? 0 : 1); };
    std::vector<std::int64_t> rows;
    for (std::int64_t row = k.compressed; row < std::ssize(weights); ++row)
      if (weights[static_cast<std::size_t>(row)] > 0 && first + position(row) >= 0) rows.push_back(row);
    std::ranges::stable_sort(rows, std::greater(),
                             [&](std::int64_t row) { return weights[static_cast<std::size_t>(row)]; });
    rows.resize(std::min(rows.size(), most));
    out["piece"] = piece(out.at("query").get<std::int64_t>());
    out["strongest"] = nlohmann::ordered_json::array();
    for (const std::int64_t row : rows)
      out["strongest"].push_back({{"position", position(row)},
                                  {"piece", piece(position(row))},
                                  {"weight", weights[static_cast<std::size_t>(row)]}});
  }

  const MixesPositions& shown_;
  KeyRows keys_;  // key rows of the layer that sees the most
  fs::path folder_;
  Input input_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int64_t> layers_, heads_, queries_;
  AttentionView view_;
  nlohmann::ordered_json made_ = nlohmann::ordered_json::array(), sheets_ = nlohmann::ordered_json::array();
};

void draw_layers(const LoadedRun& run, MapDrawing& drawing) {
  CounterLine line("layer", false);
  show_attention(
      *run.model, *run.recipe.objective, drawing.input().text, drawing.queries(),
      [&](std::int64_t layer, const MixesPositions::Probabilities& probabilities) {
        drawing.draw(layer, probabilities);
        line.update(layer + 1, drawing.layers());
      },
      [&](std::int64_t read) { line.update("window", read, drawing.input().before); });
}

void run_attention(AttentionOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  check_room_for_products();
  keep_to(host_share(1));
  const LoadedRun run = load_run(o.run, o.weights, parse_checkpoint_choice(o.checkpoint));
  const auto& shown = required<MixesPositions>(*run.model, "show what it attends to");
  const std::string own = (fs::path(o.run) / "attention").string();
  if (o.output.empty()) o.output = own;
  if (o.output == own || is_same_place(o.output, own)) folder_inside(o.run, "attention");
  MapDrawing drawing(o, run, shown);
  const NewFolders made = make_output_folder(o.output, o.replace || is_same_place(o.output, own), {});
  draw_layers(run, drawing);
  drawing.write_index(run.step);
  if (is_same_place(o.output, own)) remove_older_files(o.output, {"layer-"}, drawing.files());
  if (o.json)
    return print_json({{"output", o.output}, {"run", o.run}, {"step", run.step}, {"pictures", drawing.pictures()}});
  print_written(o.output, fmt::format("{} of step {}{}, and a contact sheet per layer, layer-*.png",
                                      counted(static_cast<std::int64_t>(drawing.pictures()), "picture"), run.step,
                                      run.weights_text()));
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
  attention->add_option("--input", o->input, "which sequence of the split, from 0, the default")
      ->check(not_below_zero());
  attention
      ->add_option("--before", o->before,
                   "for a model that remembers: read this many sequences before it; default: all that can matter")
      ->check(not_below_zero());
  attention->add_option("--split", o->split, "train, valid or test")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "valid", "test"}));
  attention->add_option("--data", o->data, "a prepared dataset other than the recipe's");
  attention->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  attention->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  attention->add_option("--output", o->output, "folder to write to; default: RUN/attention");
  attention->add_flag("--force", o->replace,
                      "write into a folder that holds files, and replace those of the same names");
  add_json_option(*attention, o->json);
  attention->callback([o, &session] { run_attention(*o, session); });
}

}  // namespace longstride
