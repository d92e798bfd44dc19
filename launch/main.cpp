// The `longstride` command. Every error ends here: the user's mistakes with one sentence and exit code 2, ours with 1.
#include <spdlog/spdlog.h>

#include <omp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "framework/comm/failure.h"
#include "framework/core/device/host_limits.h"
#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/trainer.h"
#include "kernels/gemm/blas.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/processor.h"
#include "launch/console/standard_streams.h"
#include "launch/run/same_on_ranks.h"

namespace longstride {
namespace {

constexpr int user_mistake = 2, our_fault = 1;

void be_quiet() {
  spdlog::set_level(spdlog::level::warn);
  show_no_progress();
}

void set_log_level(const std::string& name, const Session& session) {
  const bool first = session.comm->rank() == 0;
  spdlog::set_level(name == "error"               ? spdlog::level::err
                    : name == "warning" || !first ? spdlog::level::warn
                                                  : spdlog::level::info);
}

void add_commands(CLI::App& app, Session& session) {
  app.fallthrough();
  CLI::Option* quiet = app.add_flag_callback("--quiet", be_quiet, "print results, warnings and errors only");
  app.add_option_function<std::string>(
         "--log-level", [&session](const std::string& name) { set_log_level(name, session); },
         "messages to show in addition to progress: info, warning or error")
      ->check(CLI::IsMember({"info", "warning", "error"}))
      ->excludes(quiet);
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "longstride " LONGSTRIDE_VERSION);
  app.set_help_all_flag("--help-all", "show the options of every subcommand too");
  add_prepare(app, session);
  add_info(app, session);
  add_recipe(app, session);
  add_plan(app, session);
  add_train(app, session);
  add_eval(app, session);
  add_sample(app, session);
  add_encode(app, session);
  add_predict(app, session);
  add_show(app, session);
  add_bench(app, session);
  add_reproduce(app, session);
  add_export(app, session);
  add_attention(app, session);
  add_report(app, session);
  add_doctor(app, session);
  add_help(app, session);
  refuse_impossible_values(app);
}

const char* first_given(std::initializer_list<const char*> variables) {
  for (const char* name : variables)
    if (const char* text = std::getenv(name)) return text;
  return nullptr;
}

// Between two parallel loops OpenMP's threads spin for milliseconds. With another program on the same cores (a second
// rank, a compiler) this slows a run down up to twentyfold (docs/notes/2026-11/performance.md), so they spin for a few
// microseconds and then sleep. OpenBLAS multiplies on the caller's thread (kernels/gemm/blas.h), but starts one per
// core, each of which spins as well, without end if the limit on address space has no room for its buffer, and may not
// know this processor. Both libraries read their settings before main, so the process restarts itself: by the name of
// its file, which names the process, and with the words that started it, which begin with a loader's if one was called
// to run the program.
void set_up_libraries() {
  const bool waits = first_given({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) != nullptr;
  const char* threads = first_given({"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"});
  const bool alone = threads != nullptr && std::string(threads) == "1";
  const char* const core = kernels::cpu::better_blas_core();
  if (waits && alone && core == nullptr) return;
  if (!waits) setenv("GOMP_SPINCOUNT", "1000", 1);
  if (!alone) setenv("OPENBLAS_NUM_THREADS", "1", 1);
  if (core != nullptr) setenv("OPENBLAS_CORETYPE", core, 1);
  std::error_code error;
  const std::filesystem::path self = "/proc/self/exe", program = std::filesystem::read_symlink(self, error);
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (words.empty()) return;  // there is no /proc: the threads keep spinning
  execv(program.c_str(), argv.data());
  execv(self.c_str(), argv.data());  // the file has been removed or replaced meanwhile
}

// Ranks on one machine share its cores, or what a quota allows of them, unless OMP_NUM_THREADS says otherwise. With far
// more threads than cores a step takes minutes, or there is no memory for their stacks: such a number is ignored, like
// one that libgomp refuses.
void share_cores() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const int most = std::max(64, omp_get_num_procs()), taken = omp_get_max_threads();
  if (wanted != nullptr && std::atoi(wanted) == taken && taken <= most) return;
  const char* local = first_given({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"});
  const int ranks = local == nullptr ? 1 : std::max(1, std::atoi(local)), mine = usable_processors() / ranks;
  omp_set_num_threads(std::max(1, mine));
  const char* rank = first_given({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  if (wanted != nullptr && (rank == nullptr || std::atoi(rank) == 0))
    spdlog::warn(
        "OMP_NUM_THREADS is '{}', but must be a number from 1 to {} here; it is ignored, and each rank uses {}", wanted,
        most, std::max(1, mine));
}

int run(int argc, char** argv, Session& session) {
  const bool first = session.comm->rank() == 0;
  CLI::App app("Longstride trains autoregressive models on very long sequences.", "longstride");
  add_commands(app, session);
  bool parsed = false;
  app.parse_complete_callback([&] {  // before the command begins
    parsed = true;
    mistake_of_this_rank(command_of(app), *session.comm);
  });
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty() && first) std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& e) {
    const bool mistake = e.get_exit_code() != 0;
    const auto command = mistake ? std::nullopt : std::optional<std::string>("--help or --version");
    if (!parsed && mistake_of_this_rank(command, *session.comm)) throw user_error("{}", printable(explain(app, e)));
    if (!mistake) return first ? app.exit(e) : 0;  // --help and --version
    if (first) print_error(printable(explain(app, e)));
    return user_mistake;
  }
}

// Ends the whole job. One of the ranks that fail says why and, if there are several ranks, which one it is.
int report(const Session& session, int code, const std::string& message) {
  constexpr double until_ended = 10;  // seconds
  if (reports_failure(until_said)) {
    std::string prefix;
    if (session.comm->size() > 1) prefix = fmt::format("rank {} ({}): ", session.comm->rank(), session.comm->host());
    print_error(prefix + message);
  } else {  // the rank that said it ends this one
    std::this_thread::sleep_for(std::chrono::duration<double>(until_ended));
  }
  if (session.watchdog) session.watchdog->announce_failure(code);
  if (session.comm->size() > 1) abort_all_ranks(code);
  return code;
}

int guarded(int argc, char** argv, Session& session) {
  try {
    const int code = run(argc, argv, session);
    check_output_written();
    return code;
  } catch (const TrainingDiverged& e) {
    return report(session, diverged_exit_code, e.what());
  } catch (const UserError& e) {
    return report(session, user_mistake, e.what());
  } catch (const std::bad_alloc&) {
    return report(session, user_mistake,
                  "out of memory; `longstride plan` shows what needs it: lower train.micro_batch, set model.recompute: "
                  "block, or use more ranks");
  } catch (const CommunicationError& e) {
    if (session.watchdog) session.watchdog->find_cause();
    return report(session, our_fault, e.what());
  } catch (const std::filesystem::filesystem_error& e) {  // a name too long, a folder that may not be entered
    return report(session, user_mistake, fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::system_error& e) {
    if (std::ferror(stdout) != 0)
      return report(session, user_mistake, fmt::format("standard output cannot be written: {}", e.code().message()));
    return report(session, our_fault, fmt::format("internal error: {}", e.what()));
  } catch (const std::exception& e) {
    return report(session, our_fault, fmt::format("internal error: {}", e.what()));
  }
}

// The linker has this called before the constructors of the program and of its libraries.
__attribute__((section(".preinit_array"), used)) void (*const before_everything)(int, char**,
                                                                                 char**) = refuse_older_processor;

}  // namespace
}  // namespace longstride

int main(int argc, char** argv) {
  using namespace longstride;
  open_closed_streams();
  set_up_libraries();
  prctl(PR_SET_NAME, "longstride");  // as a loader or a link may have another name
  std::signal(SIGXFSZ, SIG_IGN);     // exceeding a limit on file size is a failed write, with a message
  log_to_standard_error();
  try {
    share_cores();
    const auto comm = make_communicator(&argc, &argv);
    Session session;
    session.comm = comm.get();
    if (comm->rank() != 0) spdlog::set_level(spdlog::level::warn);
    return guarded(argc, argv, session);
  } catch (const UserError& e) {  // MPI that cannot start
    print_error(e.what());
    return user_mistake;
  } catch (const std::exception& e) {
    print_error(std::string("internal error: ") + e.what());
    return our_fault;
  }
}
