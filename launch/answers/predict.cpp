// longstride predict RUN: a model's answers to what its objective asks about a file, as JSON lines.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/answers/file_rows.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

struct PredictOptions {
  std::string run, input, mask, checkpoint = "last", weights = "automatic";
  bool json = false;
  GroupsOption groups;
  DeviceOption device;
};

// Every occurrence of `mask` becomes one hidden byte. The places of those.
std::vector<std::int64_t> hide(std::vector<std::uint8_t>& bytes, const std::string& mask) {
  std::vector<std::int64_t> places;
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < bytes.size();) {
    const bool is_mask =
        i + mask.size() <= bytes.size() && std::memcmp(bytes.data() + i, mask.data(), mask.size()) == 0;
    if (is_mask) places.push_back(static_cast<std::int64_t>(out.size()));
    out.push_back(is_mask ? std::uint8_t{0} : bytes[i]);
    i += is_mask ? mask.size() : 1;
  }
  bytes = std::move(out);
  return places;
}

// Those in a window, counted from its first byte.
std::vector<std::int64_t> within(const std::vector<std::int64_t>& places, const FileWindow& window) {
  std::vector<std::int64_t> out;
  for (const std::int64_t place : places)
    if (place >= window.first && place < window.first + window.count) out.push_back(place - window.first);
  return out;
}

// A byte that the user has hidden is not known, and neither is its score.
void forget_hidden(nlohmann::ordered_json& answer) {
  for (const char* known : {"shown", "byte", "bits"}) answer.erase(known);
}

// Answers about tokens have their text beside the ids.
void name_pieces(nlohmann::ordered_json& answer, const RunTokens& tokens) {
  if (tokens.is_of_bytes() || !answer.contains("byte")) return;
  const int token = answer.at("byte").get<int>(), predicted = answer.at("predicted").get<int>();
  answer.erase("byte");
  answer["token"] = token;
  if (tokens.model().empty()) return;
  answer["piece"] = tokens.text(token);
  answer["predicted_piece"] = tokens.text(predicted);
}

// Adds the names of classes and labels to their numbers; null for one that the data does not have.
void name_labels(nlohmann::ordered_json& answer, const std::vector<std::string>& names) {
  const auto name_of = [&](std::size_t number) -> nlohmann::ordered_json {
    return number < names.size() ? nlohmann::ordered_json(names[number]) : nlohmann::ordered_json();
  };
  if (names.empty()) return;
  if (answer.contains("class")) answer["name"] = name_of(answer.at("class").get<std::size_t>());
  if (!answer.contains("labels")) return;
  answer["names"] = nlohmann::ordered_json::array();
  for (const auto& label : answer.at("labels")) answer["names"].push_back(name_of(label.get<std::size_t>()));
}

void run_predict(const PredictOptions& o, const CLI::App& command, Session& session) {
  const Device device = chosen_device(o.device, *session.comm);
  const LoadedRun run = load_run(o.run, o.weights, parse_checkpoint_choice(o.checkpoint));
  const Objective& objective = *run.recipe.objective;
  const bool masks = command.count("--mask") > 0;
  if (masks && (o.mask.empty() || !objective.hides()))
    throw user_error("--mask {}, but {}; leave it out", o.mask.empty() ? "is empty" : "is given",
                     o.mask.empty() ? "must be what stands for a hidden byte"
                                    : fmt::format("this run's objective, {}, hides no bytes", objective.kind()));
  std::vector<std::uint8_t> bytes = bytes_of_input(run, o.input);
  std::vector<std::int64_t> places;
  if (masks) places = hide(bytes, o.mask);
  if (masks && places.empty())
    throw user_error(
        "--input {}: does not have '{}', which stands for a hidden byte; write it there, or leave out "
        "--mask",
        printable(o.input), printable(o.mask));
  const std::vector<std::int64_t> groups = groups_of_input(run, o.groups, bytes);
  const RunTokens tokens = run.tokens();
  const std::vector<std::string> names = label_names_of(run);
  const std::int64_t each = tokens.token_bytes();
  nlohmann::ordered_json all = {{"run", o.run}, {"answers", nlohmann::ordered_json::array()}};
  const auto print_answers = [&](const Batch& row, std::span<const float> scores, std::int64_t first) {
    const std::int64_t asked = row.predicted().size(1);
    for (nlohmann::ordered_json& answer :
         objective.answers_of({row, scores.data(), std::ssize(scores) / asked, first})) {
      if (masks) forget_hidden(answer);
      name_pieces(answer, tokens);
      name_labels(answer, names);
      if (o.json)
        all["answers"].push_back(std::move(answer));
      else
        fmt::print("{}\n", answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  };
  const ReadWindow read = [&](RowReader& reader, const FileWindow& window) {
    RowBytes of{.bytes = bytes.data() + window.first * each};
    of.wide = each > 1;
    of.offset = window.first, of.groups = {groups, window.first};
    const std::vector<std::int64_t> hidden = within(places, window);
    if (masks) of.hidden = hidden;
    const Batch& row = reader.write(of, window.count, {0, window.number});
    return
        [&print_answers, &row, scores = reader.scores(), first = window.first] { print_answers(row, scores, first); };
  };
  read_windows(run, std::ssize(bytes) / each, true, device, read);
  if (o.json) print_json(all);
}

}  // namespace

void add_predict(CLI::App& app, Session& session) {
  auto o = std::make_shared<PredictOptions>();
  CLI::App* predict = app.add_subcommand("predict", "Answers to what the objective asks about a file, as JSON lines");
  predict->add_option("run", o->run, "run directory")->required();
  predict->add_option("--input", o->input, "file of bytes, or text of tokens, read in windows of the context")
      ->required();
  predict->add_option("--mask", o->mask,
                      "what stands in the file for one hidden byte; default: bytes are hidden as in an evaluation");
  predict->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  predict->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  add_groups_option(*predict, o->groups);
  add_device_option(*predict, o->device);
  add_json_option(*predict, o->json);
  predict->callback([o, predict, &session] { run_predict(*o, *predict, session); });
}

}  // namespace longstride
