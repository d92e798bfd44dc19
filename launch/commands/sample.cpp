// longstride sample RUN: draws sequences, or completes given beginnings, and writes text, PNG or WAV.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/stop.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/step/precision.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/counter_line.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/hub/pretrained.h"
#include "launch/run/prompt.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"
#include "launch/run/write_samples.h"
#include "launch/sample/streamed_text.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

struct SampleOptions {
  std::string run, output, prompt_text, complete, checkpoint = "last", weights = "automatic", precision;
  std::vector<std::string> prompts;  // files
  std::int64_t rate = 0, given = 0;
  bool given_set = false;  // by the user
  bool replace = false, json = false;
  SampleConfig config;
  DeviceOption device;
};

// "standard input" or the file's name.
std::string name_of_prompt(const std::string& file) { return file == "-" ? "standard input" : file; }

// A row for every completion: what was given, the model's completion, and the original.
// `originals`: one for each sample.
void write_completions(const std::string& path, const std::vector<Bytes>& samples, const std::vector<Bytes>& originals,
                       std::int64_t given, const Geometry& g) {
  std::vector<Bytes> pictures;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const Bytes& original = originals[s];
    Bytes known = original;
    std::fill(known.begin() + given, known.end(), std::uint8_t{0});
    pictures.insert(pictures.end(), {known, samples[s], original});
  }
  write_grid(path, pictures, 3, g);
}

// Sampling rate of the sound that the run was trained on, from the checkpoint or the dataset; 0: not known.
std::int64_t trained_rate(const LoadedRun& run) {
  if (run.recipe.data.kind != DataKind::audio) return 0;
  if (const auto known = run.data.find("rate"); known != run.data.end())
    if (const std::int64_t rate = std::strtoll(known->second.c_str(), nullptr, 10); rate > 0) return rate;
  const std::string& path = run.recipe.data.path;
  return fs::exists(path) ? Dataset::open(path)->info().rate : 0;
}

// From the user, or what it was trained on. 0 if the run is not about sound.
std::int64_t sampling_rate(const SampleOptions& o, const LoadedRun& run) {
  const Recipe& recipe = run.recipe;
  const bool sound = recipe.data.kind == DataKind::audio;
  if (o.rate > 0 && !sound)
    throw user_error("--rate is {}, but the samples of {} are not sound; leave --rate out", o.rate, o.run);
  if (o.rate > 0 || !sound) return o.rate;
  if (const std::int64_t rate = trained_rate(run); rate > 0) return rate;
  const std::string& path = recipe.data.path;
  const bool unnamed = path == unnamed_data;
  throw user_error("{}: {}, so the sampling rate is unknown; give it, as in --rate 12000", unnamed ? o.run : path,
                   unnamed ? "does not say which data it was trained on" : "does not exist");
}

// The first sequences of a split, whole; the samples continue their beginnings.
std::vector<Bytes> read_originals(SampleOptions& o, const LoadedRun& run) {
  const Recipe& recipe = run.recipe;
  if (recipe.data.path != unnamed_data && !fs::exists(recipe.data.path))
    throw user_error(
        "{}: does not exist, but --complete takes the beginnings from it; make it with `longstride prepare`",
        recipe.data.path);
  const auto dataset = open_own_data(run, o.complete, "leave --complete out");
  const auto split = dataset->split(o.complete, recipe.data);
  std::vector<Bytes> out;
  for (std::int64_t s = 0; s < split->sequences() && static_cast<std::int64_t>(out.size()) < o.config.count; ++s)
    for (std::int64_t at = 0; at + o.config.length <= split->length(s); at += o.config.length) {
      if (static_cast<std::int64_t>(out.size()) == o.config.count) break;
      const auto bytes = static_cast<std::size_t>(o.config.length * split->token_bytes());
      split->read(s, at, o.config.length, out.emplace_back(bytes).data());
    }
  if (out.empty())
    throw user_error("{}: the split '{}' has no whole sequence of {} {}s to continue; choose another with --complete",
                     recipe.data.path, o.complete, o.config.length, dataset->info().unit());
  if (static_cast<std::int64_t>(out.size()) < o.config.count)
    throw user_error("--count is {}, but the split '{}' of {} has {} of {} {}s to continue; choose at most that",
                     o.config.count, o.complete, recipe.data.path, counted(std::ssize(out), "sequence"),
                     o.config.length, dataset->info().unit());
  return out;
}

// Samples that are drawn together: their beginnings are of one length.
struct Beginnings {
  std::vector<Bytes> prompts;    // one for all, one for each, or none
  std::vector<Bytes> originals;  // wholes that prompts are beginnings of, one for each, with pictures and --complete
};

// A prompt's bytes or tokens, or as many as --given says.
Beginnings of_prompt(const SampleOptions& o, const LoadedRun& run, const Bytes& prompt, const std::string& name) {
  const RunTokens tokens = run.tokens();
  Bytes bytes = tokens.ids(prompt);
  const std::int64_t count = std::ssize(bytes) / tokens.token_bytes(), length = o.config.length;
  const bool text = is_text(run.recipe.data.kind), picture = run.recipe.model->geometry.rows > 0;
  if (o.given_set && count < o.given)
    throw user_error("--given is {}, but the prompt, {}, has {} {}s; give fewer", o.given, name, count, tokens.unit());
  if (o.given_set) bytes.resize(static_cast<std::size_t>(o.given * tokens.token_bytes()));
  if (!o.given_set && count >= length)
    throw user_error("{}: the prompt must be shorter than the {} {}s of a sample; shorten it{}{}", name, length,
                     tokens.unit(), text ? "" : ", take its beginning with --given",
                     picture ? "" : ", or raise --length");
  return {{std::move(bytes)}, {}};
}

Beginnings of_wholes(const SampleOptions& o, const LoadedRun& run, std::vector<Bytes> wholes) {
  Beginnings out;
  const std::int64_t given = o.given * (run.recipe.data.vocabulary > 256 ? 2 : 1);
  for (const Bytes& whole : wholes) out.prompts.emplace_back(whole.begin(), whole.begin() + given);
  out.originals = std::move(wholes);
  return out;
}

// The beginnings of samples, one entry for every file of --prompt.
std::vector<Beginnings> read_beginnings(SampleOptions& o, const LoadedRun& run) {
  if (!o.complete.empty()) return {of_wholes(o, run, read_originals(o, run))};
  if (!o.prompt_text.empty())
    return {of_prompt(o, run, Bytes(o.prompt_text.begin(), o.prompt_text.end()), "--prompt-text")};
  if (o.prompts.empty()) return {Beginnings{}};
  const std::int64_t rate = trained_rate(run);
  const SampleForm form = {run.recipe.data.kind, run.recipe.model->geometry, rate > 0 ? rate : sampling_rate(o, run)};
  std::vector<Beginnings> all;
  for (const std::string& file : o.prompts) {
    constexpr std::int64_t most_text = std::int64_t{1} << 26;  // as it is not known how many tokens it becomes
    const std::int64_t wanted = o.given_set ? o.given : o.config.length;
    Prompt prompt = read_prompt(file, form, form.kind == DataKind::tokens ? most_text : wanted);
    const auto count = static_cast<std::size_t>(o.config.count);
    all.push_back(prompt.picture ? of_wholes(o, run, std::vector<Bytes>(count, std::move(prompt.bytes)))
                                 : of_prompt(o, run, prompt.bytes, name_of_prompt(file)));
  }
  return all;
}

void check_lengths(SampleOptions& o, const LoadedRun& run) {
  const ModelConfig& model = *run.recipe.model;
  if (o.config.length == 0) o.config.length = model.context;
  if (model.geometry.rows > 0 && o.config.length != model.context)
    throw user_error("--length is {}, but a picture of this model has {} bytes; leave --length out", o.config.length,
                     model.context);
  o.given_set = o.given > 0;
  if (o.given_set && o.complete.empty() && o.prompts.empty() && o.prompt_text.empty())
    throw user_error("--given is {}, but there is nothing that it is taken from; add --complete or --prompt", o.given);
  if (!o.given_set) o.given = o.config.length / 2;
  if (o.given >= o.config.length)
    throw user_error("--given is {}, but must be below the {} bytes of a sample", o.given, o.config.length);
}

Precision precision_of(const SampleOptions& o, const Recipe& recipe, Device device) {
  if (device == Device::cpu && !o.precision.empty() && o.precision != "fp32")
    throw user_error("--precision is {}, which needs a GPU, and this runs on the CPU; leave --precision out",
                     o.precision);
  if (o.precision == "fp32" || device == Device::cpu) return Precision::fp32;
  if (o.precision == "bf16") return Precision::bf16;
  if (o.precision == "fp16") return Precision::fp16;
  return recipe.train.precision;
}

// As many sequences at once as the GPU has memory for.
void fit_batch(SampleConfig& config, const LoadedRun& run, Device device, Precision precision) {
  if (device == Device::cpu || config.batch > 0) return;
  Context ctx;
  ctx.device = device;
  ctx.compute = compute_type(precision, device);
  ParameterSet& parameters = run.model->parameters();
  parameters.bind(run.masters, run.masters, Tensor(nullptr, ctx.compute, run.masters.shape()));
  const double room =
      0.9 * static_cast<double>(device_info().free_bytes) - 2.0 * static_cast<double>(run.masters.bytes());
  for (config.batch = std::min<std::int64_t>(config.count, 16); config.batch > 1; config.batch = (config.batch + 1) / 2)
    if (static_cast<double>(sample_memory(*run.model, ctx, config).total) <= room) break;
  parameters.bind(run.masters, run.masters);
}

// Exactly the bytes of a single sample if standard output is not a terminal. Several have headings as from `head`.
void print_samples(const std::vector<Bytes>& samples) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    std::string text(samples[s].begin(), samples[s].end());
    if (terminal) text = safe_for_terminal(text);
    if (samples.size() > 1) text = fmt::format("{}==> sample-{:03}.txt <==\n{}", s > 0 ? "\n" : "", s, text);
    if ((terminal || samples.size() > 1) && !text.ends_with('\n')) text += '\n';
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

// The samples of one kind of beginning.
Samples draw_samples(SampleConfig config, const LoadedRun& run, Device device, Precision precision,
                     StreamedText* streamed) {
  fit_batch(config, run, device, precision);
  if (streamed != nullptr)
    config.shown = [streamed, tokens = run.tokens()](std::string_view ids) { streamed->add(tokens.text(ids)); };
  EvaluationMemory memory(*run.model, run.masters, precision, device, [&](const Context& ctx) {
    return static_cast<std::size_t>(sample_memory(*run.model, ctx, config).total);
  });
  Context ctx = memory.context();
  run.describe(ctx);
  CounterLine line("sample", streamed != nullptr);
  const auto progress = [&](std::int64_t done, std::int64_t all) { line.update(done, all); };
  Samples drawn = sample(*run.model, ctx, config, progress, stop_requested);
  if (streamed != nullptr) streamed->finish();
  return drawn;
}

struct Drawn {
  std::vector<Bytes> samples, originals;  // texts of tokens; originals: none, or one for each
  std::int64_t longest = 0;               // bytes or tokens of the first
  bool stopped = false;                   // by a signal
};

// Where a signal ends the drawing, what there is stays; of pictures, the whole ones.
Drawn draw_all(const SampleOptions& o, const LoadedRun& run, std::vector<Beginnings> all, Device device, bool printed) {
  const Precision precision = precision_of(o, run.recipe, device);
  const bool picture = run.recipe.model->geometry.rows > 0;
  const RunTokens tokens = run.tokens();
  Drawn out;
  StreamedText streamed(stdout, ::isatty(STDOUT_FILENO) == 1);
  const bool streams = printed && all.size() == 1 && o.config.count == 1;
  for (Beginnings& beginnings : all) {
    SampleConfig config = o.config;
    config.prompts = std::move(beginnings.prompts);
    run.model->parameters().bind(run.masters, run.masters);  // as the memory of other beginnings is gone
    Samples drawn = draw_samples(config, run, device, precision, streams ? &streamed : nullptr);
    for (std::size_t s = 0; s < drawn.bytes.size(); ++s) {
      if (picture && std::ssize(drawn.bytes[s]) < o.config.length) continue;
      if (out.samples.empty()) out.longest = std::ssize(drawn.bytes[s]) / tokens.token_bytes();
      out.samples.push_back(tokens.text(drawn.bytes[s]));
      if (!beginnings.originals.empty()) out.originals.push_back(std::move(beginnings.originals[s]));
    }
    if ((out.stopped = drawn.abandoned)) break;
  }
  if (out.samples.empty()) throw user_error("stopped by a signal before a picture was whole; nothing was written");
  if (printed && !streams) print_samples(out.samples);
  return out;
}

void check_prompt_text(const SampleOptions& o, const LoadedRun& run) {
  if (o.prompt_text.empty() || is_text(run.recipe.data.kind)) return;
  throw user_error(
      "--prompt-text is for runs on text, but the samples of {} are {}; give their first bytes in a file "
      "with --prompt",
      o.run, run.recipe.data.kind == DataKind::audio ? "sound" : "pictures");
}

// Writes the samples, and removes from the run's own folder those of an earlier call.
void keep_samples(const SampleOptions& o, const LoadedRun& run, std::int64_t rate, const Drawn& drawn, bool own) {
  const Geometry& g = run.recipe.model->geometry;
  std::set<std::string> written;
  for (const fs::path& file : write_samples(o.output, {run.recipe.data.kind, g, rate}, drawn.samples))
    written.insert(file.filename().string());
  if (g.rows > 0 && drawn.samples.size() > 1) written.insert("grid.png");
  if (!drawn.originals.empty() && g.rows > 0) {
    write_completions((fs::path(o.output) / "completions.png").string(), drawn.samples, drawn.originals, o.given, g);
    written.insert("completions.png");
  }
  if (own) remove_older_files(o.output, {"sample-", "grid.png", "completions.png"}, written);
}

void print_result(const SampleOptions& o, const LoadedRun& run, const Drawn& drawn, bool printed) {
  if (o.json) {
    nlohmann::ordered_json out = {{"output", o.output},
                                  {"run", o.run},
                                  {"step", run.step},
                                  {"weights", run.weights_name()},
                                  {"count", drawn.samples.size()},
                                  {"length", o.config.length},
                                  {"temperature", o.config.sampling.temperature},
                                  {"seed", o.config.sampling.seed}};
    if (*run.other_weights() != '\0') out["other_weights"] = run.other_weights();
    if (drawn.stopped) out["stopped"] = true;
    return print_json(out);
  }
  std::fflush(stdout);
  if (!progress_is_shown()) return;
  fmt::print(printed ? stderr : stdout, "{} of {} {}s at temperature {:g} from step {}{}{}: {}\n",
             counted(std::ssize(drawn.samples), "sample"), drawn.stopped ? drawn.longest : o.config.length,
             run.tokens().unit(), o.config.sampling.temperature, run.step, run.weights_text(),
             drawn.stopped ? ", stopped by a signal" : "", o.output);
}

void run_sample(SampleOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;  // one process is enough, and the samples do not depend on the ranks
  const Device device = chosen_device(o.device, *make_single_communicator());
  const LoadedRun run = load_run(o.run, o.weights, parse_checkpoint_choice(o.checkpoint));
  check_device_computes(*run.model, device);
  precision_of(o, run.recipe, device);
  check_prompt_text(o, run);
  check_lengths(o, run);
  std::vector<Beginnings> beginnings = read_beginnings(o, run);
  const std::string own = (fs::path(o.run) / "samples").string();
  const bool printed = !o.json && o.output.empty() && is_text(run.recipe.data.kind);
  if (o.output.empty()) o.output = own;
  const bool in_run = o.output == own || is_same_place(o.output, own);
  if (in_run) folder_inside(o.run, "samples");
  const std::int64_t rate = sampling_rate(o, run);
  std::vector<std::string> inputs = o.prompts;
  std::erase(inputs, "-");
  // Before the work, not after it.
  const NewFolders made = make_output_folder(o.output, o.replace || in_run, inputs);
  catch_stop_signals(StopNotices{"stopping; what is drawn is kept\n", "stopping; what is drawn is kept\n"});
  const Drawn drawn = draw_all(o, run, std::move(beginnings), device, printed);
  keep_samples(o, run, rate, drawn, is_same_place(o.output, own));
  print_result(o, run, drawn, printed);
}

}  // namespace

void add_sample(CLI::App& app, Session& session) {
  auto o = std::make_shared<SampleOptions>();
  kernels::Sampling& sampling = o->config.sampling;
  CLI::App* sample = app.add_subcommand("sample", "Draw text, pictures or sound from a trained run");
  sample->add_option("run", o->run, run_or_folder)->required();
  sample->add_option("--count", o->config.count, "sequences")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  sample
      ->add_option(
          "--length", o->config.length,
          "bytes (or tokens) of each, prompt included; default: the context, past which a window slides; Ctrl-C keeps "
          "what is drawn")
      ->check(CLI::Range(std::int64_t{1}, longest_sample));
  sample->add_option("--temperature", sampling.temperature, "logits are divided by it; 0: the likeliest byte")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  sample->add_option("--top-k", sampling.top_k, "draw from the k likeliest bytes; 0, the default: all")
      ->check(not_below_zero());
  sample
      ->add_option("--top-p", sampling.top_p,
                   "draw from the fewest likeliest bytes that together have this probability")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  CLI::Option* prompt =
      sample->add_option("--prompt", o->prompts,
                         "file whose content every sample begins with, or - for standard input; sound and "
                         "pictures are decoded as prepare does. Given several times: --count samples of each");
  CLI::Option* prompt_text =
      sample->add_option("--prompt-text", o->prompt_text, "text that every sample begins with")->excludes(prompt);
  sample->add_option("--complete", o->complete, "continue the beginnings of the first sequences of this split")
      ->check(CLI::IsMember({"train", "valid", "test"}))
      ->excludes(prompt)
      ->excludes(prompt_text);
  sample
      ->add_option("--given", o->given,
                   "bytes to begin with, of those that --complete or the prompt has; default: half of a sequence or "
                   "a picture, and all of another prompt")
      ->check(above_zero());
  sample->add_option("--seed", sampling.seed, "seed of the draws; default: 1")->check(not_below_zero());
  sample->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  sample->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  sample->add_option("--rate", o->rate, "sound: samples per second; default: the dataset's")
      ->check(CLI::Range(1000, 192000));
  sample->add_option("--output", o->output, "folder to write to; default: RUN/samples, and text is printed too");
  sample->add_flag("--force", o->replace, "write into a folder that holds files, and replace those of the same names");
  sample
      ->add_option("--batch", o->config.batch,
                   "sequences drawn at once; default: all, on a GPU up to 16 that fit in memory")
      ->check(above_zero());
  sample->add_option("--precision", o->precision, "on a GPU: fp32, bf16 or fp16; default: the run's")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_device_option(*sample, o->device);
  add_json_option(*sample, o->json);
  sample->callback([o, &session] { run_sample(*o, session); });
}

}  // namespace longstride
