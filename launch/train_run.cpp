#include "launch/train_run.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>

#include "datasets/dataset.h"
#include "framework/comm/collectives.h"
#include "framework/comm/watchdog.h"
#include "framework/core/errors.h"
#include "framework/core/files.h"
#include "framework/train/checkpoint.h"
#include "framework/train/gradient_exchange.h"
#include "framework/train/memory_plan.h"
#include "framework/train/precision.h"
#include "launch/device_option.h"
#include "launch/environment.h"
#include "launch/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A fresh run must not write over another one; a resumed one needs something to resume.
void prepare_directory(const std::string& run, bool resume, const Recipe& recipe, Session& session) {
  const bool there = !checkpoint_steps(run).empty();
  if (there && !resume)
    throw user_error("{}: holds checkpoints already; continue it with --resume or choose another directory with --run",
                     run);
  if (!there && resume) throw user_error("{}: holds no checkpoint to resume from; start the run without --resume", run);
  if (resume && session.comm->rank() == 0) check_resumable(run, recipe);
  session.comm->barrier();  // every rank has looked before rank 0 writes
  if (session.comm->rank() != 0) return;
  std::error_code error;
  fs::create_directories(fs::path(run) / "checkpoints", error);
  if (error) throw user_error("{}: cannot be created ({}); choose another directory with --run", run, error.message());
}

// Every rank calls it; rank 0 prints what the run is and where it runs.
void announce(const Recipe& recipe, SparseTransformer& model, Communicator& comm, Device device,
              const std::string& run) {
  const int ranks = comm.size(), nodes = count_nodes(comm);
  const std::string links = interconnect(comm, device);
  const bool overlapped = overlaps(recipe.train.parallel, comm, device);
  if (comm.rank() != 0) return;
  const MemoryPlan plan = plan_memory(model, recipe.train, ranks, device);
  const Batching batching = divide_batch(recipe.train, ranks);
  const ParallelConfig& parallel = recipe.train.parallel;
  const auto line = [](const char* name, const std::string& value) { spdlog::info("  {:<12}{}", name, value); };
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  spdlog::info("{}: {:.1f} M parameters, context {}, {} steps of {} sequences", recipe.name,
               static_cast<double>(model.parameters().count()) / 1e6, recipe.model.context, recipe.train.steps,
               recipe.train.global_batch);
  line("ranks", fmt::format("{} on {} node(s), {} in {}", ranks, nodes,
                            device == Device::cpu ? "the CPU" : "a GPU each, " + device_info().name,
                            name_of(resolved(recipe.train.precision, device))));
  if (ranks > 1) line("links", links);
  line("batch", fmt::format("{} sequences: {} {} x {} x micro-batches of {}", recipe.train.global_batch,
                            ranks / batching.context,
                            batching.context > 1 ? fmt::format("group(s) of {} ranks", batching.context) : "rank(s)",
                            batching.accumulation(), batching.micro));
  if (ranks > 1)
    line("exchange", fmt::format("gradients in {}, {} the backward pass{}",
                                 kernels::name_of(gradient_type(recipe.train, device)), overlapped ? "beside" : "after",
                                 parallel.shard ? ", the optimizer's state divided between ranks" : ""));
  line("memory",
       fmt::format("{:.2f} GiB a rank: parameters {:.2f}, gradients {:.2f}, optimizer {:.2f}, activations "
                   "{:.2f}",
                   gib(device == Device::cpu ? plan.total() : plan.block()), gib(plan.parameters),
                   gib(plan.gradients + plan.exchange), gib(plan.optimizer + plan.average), gib(plan.activations)));
  line("directory", run);
}

}  // namespace

TrainingOutcome train_run(const TrainRequest& request, Session& session) {
  const Recipe& recipe = request.recipe;
  compute_type(recipe.train.precision, request.device);
  check_device_computes(recipe.model, request.device);
  const auto dataset = Dataset::open(recipe.data.path);
  const auto data = open_training_data(recipe.data, recipe.train.seed);
  const auto validation = dataset->split("valid", recipe.data.cross_files);
  SparseTransformer model(recipe.model);
  divide_batch(recipe.train, session.comm->size());
  gradient_type(recipe.train, request.device);
  prepare_directory(request.run, request.resume, recipe, session);
  if (session.comm->rank() == 0) {
    write_file_atomically((fs::path(request.run) / "recipe.yaml").string(), recipe.resolved);
    write_file_atomically((fs::path(request.run) / "environment.json").string(),
                          describe_environment(request.device, session.comm->size()));
  }
  announce(recipe, model, *session.comm, request.device, request.run);
  session.watchdog = std::make_unique<Watchdog>(*session.comm, recipe.train.hang_seconds);

  TrainerSetup setup;
  setup.model = &model;
  setup.data = data.get();
  setup.validation = validation->sequences() > 0 ? validation.get() : nullptr;
  setup.comm = session.comm;
  setup.watchdog = session.watchdog.get();
  setup.device = request.device;
  setup.config = recipe.train;
  setup.run = request.run;
  setup.recipe = recipe.resolved;
  setup.resume = request.resume;
  const TrainingOutcome outcome = train(setup);
  session.watchdog->leave();
  session.watchdog.reset();
  return outcome;
}

}  // namespace longstride
