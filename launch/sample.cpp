// longstride sample RUN: draws sequences and writes them as text, PNG or WAV.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/mu_law.h"
#include "datasets/png.h"
#include "datasets/wav.h"
#include "framework/core/errors.h"
#include "framework/core/files.h"
#include "framework/train/sampler.h"
#include "launch/arguments.h"
#include "launch/commands.h"
#include "launch/counter_line.h"
#include "launch/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

struct SampleOptions {
  std::string run, output, prompt, weights = "automatic";
  std::int64_t rate = 0;
  SampleConfig config;
};

Bytes read_prompt(const std::string& path, std::int64_t limit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw user_error("{}: cannot be read; --prompt names a file whose bytes every sample begins with", path);
  Bytes out;
  char c = 0;
  while (static_cast<std::int64_t>(out.size()) <= limit && in.get(c)) out.push_back(static_cast<std::uint8_t>(c));
  return out;
}

// All pictures side by side, in a grid as near to a square as it goes.
void write_grid(const std::string& path, const std::vector<Bytes>& samples, const Geometry& g) {
  const auto count = static_cast<std::int64_t>(samples.size());
  const auto across = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const std::int64_t down = (count + across - 1) / across, line = g.columns * g.channels;
  Bytes pixels(static_cast<std::size_t>(down * g.rows * across * line), 0);
  for (std::int64_t s = 0; s < count; ++s)
    for (std::int64_t r = 0; r < g.rows; ++r)
      std::copy_n(samples[static_cast<std::size_t>(s)].begin() + r * line, line,
                  pixels.begin() + ((s / across * g.rows + r) * across + s % across) * line);
  write_png(path, down * g.rows, across * g.columns, g.channels, pixels.data());
}

void write_samples(const fs::path& folder, const LoadedRun& run, const std::vector<Bytes>& samples, std::int64_t rate) {
  const Geometry& g = run.recipe.model.geometry;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto named = [&](const char* ending) {
      return (folder / fmt::format("sample-{:03}.{}", s, ending)).string();
    };
    switch (run.recipe.data.kind) {
      case DataKind::bytes:
        write_file_atomically(named("txt"), {reinterpret_cast<const char*>(samples[s].data()), samples[s].size()});
        break;
      case DataKind::audio:
        write_wav(named("wav"), mu_law_decode(samples[s]), rate);
        break;
      case DataKind::cifar10:
      case DataKind::images:
        write_png(named("png"), g.rows, g.columns, g.channels, samples[s].data());
        break;
    }
  }
  if (g.rows > 0 && samples.size() > 1) write_grid((folder / "grid.png").string(), samples, g);
}

// Samples a second of the sound the model was trained on: the dataset knows; without it the user says.
std::int64_t sampling_rate(const SampleOptions& o, const Recipe& recipe) {
  if (o.rate > 0 || recipe.data.kind != DataKind::audio) return o.rate;
  if (!fs::exists(recipe.data.path))
    throw user_error("{}: the dataset is not there to tell the sampling rate; say it, as in --rate 12000",
                     recipe.data.path);
  return Dataset::open(recipe.data.path)->info().rate;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw user_error("{}: cannot be created ({}); choose another folder with --output", path, error.message());
}

void run_sample(SampleOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;  // one process is enough, and the samples do not depend on the ranks
  const LoadedRun run = load_run(o.run, o.weights);
  const std::int64_t context = run.recipe.model.context;
  if (o.config.length == 0) o.config.length = context;
  if (o.config.length > context)
    throw user_error("--length is {}, but the model's context is {}", o.config.length, context);
  if (run.recipe.model.geometry.rows > 0 && o.config.length != context)
    throw user_error("--length is {}, but a picture of this model has {} bytes; leave --length out", o.config.length,
                     context);
  if (!o.prompt.empty()) o.config.prompt = read_prompt(o.prompt, o.config.length);
  if (static_cast<std::int64_t>(o.config.prompt.size()) >= o.config.length)
    throw user_error("{}: the prompt has to be shorter than the {} bytes of a sample", o.prompt, o.config.length);
  if (o.output.empty()) o.output = (fs::path(o.run) / "samples").string();

  const std::int64_t rate = sampling_rate(o, run.recipe);
  make_folder(o.output);  // before the work, not after it
  CounterLine line("sample", false);
  const auto samples =
      sample(*run.model, o.config, [&](std::int64_t done, std::int64_t all) { line.update(done, all); });
  write_samples(o.output, run, samples, rate);
  fmt::print("{} sample(s) of {} bytes at temperature {:g} from step {}: {}\n", samples.size(), o.config.length,
             o.config.temperature, run.step, o.output);
}

}  // namespace

void add_sample(CLI::App& app, Session& session) {
  auto o = std::make_shared<SampleOptions>();
  CLI::App* sample = app.add_subcommand("sample", "Draw text, pictures or sound from a trained run (on the CPU)");
  sample->add_option("run", o->run, "run directory")->required();
  sample->add_option("--count", o->config.count, "sequences")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  sample->add_option("--length", o->config.length, "bytes of each, prompt included; default: the context")
      ->check(above_zero());
  sample->add_option("--temperature", o->config.temperature, "logits are divided by it; 0: the likeliest byte")
      ->check(CLI::Range(0.0, 100.0));
  sample->add_option("--prompt", o->prompt, "file whose bytes every sample begins with");
  sample->add_option("--seed", o->config.seed, "of the draws")->check(not_below_zero());
  sample->add_option("--weights", o->weights, "last, average, or automatic: the average where the run keeps one")
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  sample->add_option("--rate", o->rate, "sound: samples a second; default: the dataset's")->check(above_zero());
  sample->add_option("--output", o->output, "folder to write to; default: RUN/samples");
  sample->callback([o, &session] { run_sample(*o, session); });
}

}  // namespace longstride
