// longstride encode RUN: the hidden rows of a file's bytes, for other programs: what the model's head reads.
#include <algorithm>
#include <memory>

#include "datasets/formats/npy.h"
#include "framework/core/text/numbers.h"
#include "launch/answers/file_rows.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"

namespace longstride {
namespace {

struct EncodeOptions {
  std::string run, input, output, checkpoint = "last", weights = "automatic";
  bool replace = false, json = false;
  GroupsOption groups;
  DeviceOption device;
};

void run_encode(const EncodeOptions& o, Session& session) {
  check_ending(o.output, ".npy", "hidden rows are written for NumPy");
  check_output_file(o.output, o.replace, {o.input});
  const Device device = chosen_device(o.device, *session.comm);
  const LoadedRun run = load_run(o.run, o.weights, parse_checkpoint_choice(o.checkpoint));
  const std::vector<std::uint8_t> bytes = bytes_of_input(run, o.input);
  const RunTokens tokens = run.tokens();
  const std::int64_t each = tokens.token_bytes(), count = std::ssize(bytes) / each;
  const std::vector<std::int64_t> groups = groups_of_input(run, o.groups, bytes);
  const std::int64_t width = required<Encodes>(*run.model, "give hidden rows").width();
  NpyWriter rows(o.output, count, width);
  read_windows(run, count, false, device, [&](RowReader& reader, const FileWindow& window) {
    RowBytes of{.bytes = bytes.data() + window.first * each};
    of.wide = each > 1;
    of.offset = window.first, of.groups = {groups, window.first};
    reader.write(of, window.count, {0, window.number});
    const auto hidden = reader.hidden().last(static_cast<std::size_t>(window.count * width));
    return [&rows, hidden] { rows.append(hidden); };
  });
  rows.commit();
  if (o.json)
    return print_json(
        {{"output", o.output}, {"run", o.run}, {fmt::format("{}s", tokens.unit()), count}, {"width", width}});
  print_written(o.output,
                fmt::format("hidden rows of {} {}s, {} numbers each", thousands(count), tokens.unit(), width));
}

}  // namespace

void add_encode(CLI::App& app, Session& session) {
  auto o = std::make_shared<EncodeOptions>();
  CLI::App* encode = app.add_subcommand("encode", "Hidden rows of a file, for other programs");
  encode->add_option("run", o->run, "run directory")->required();
  encode->add_option("--input", o->input, "file of bytes, or text of tokens, read in windows of the context")
      ->required();
  encode->add_option("--output", o->output, "NumPy file: float32, a row per byte or token")->required();
  encode->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  encode->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  encode->add_flag("--force", o->replace, "replace the output");
  add_groups_option(*encode, o->groups);
  add_device_option(*encode, o->device);
  add_json_option(*encode, o->json);
  encode->callback([o, &session] { run_encode(*o, session); });
}

}  // namespace longstride
