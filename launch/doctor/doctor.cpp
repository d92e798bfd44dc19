// [mpirun -n N] longstride doctor: is this machine, or this cluster, fit to train? If not, what to do.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "launch/commands/commands.h"
#include "launch/console/json_output.h"
#include "launch/doctor/doctor_checks.h"
#include "launch/doctor/stopwatch.h"

namespace longstride {
namespace {

// A finding in the form in which ranks exchange it.
struct PackedFinding {
  char what[24], where[72], result[256], advice[256];
  Verdict verdict;
};
constexpr std::size_t most_findings = 8;  // findings of one rank in one check

void put(char* to, std::size_t size, const std::string& text) { text.copy(to, size - 1); }

Findings gather(Communicator& comm, const Findings& mine) {
  LONGSTRIDE_CHECK(mine.size() <= most_findings, "{} findings at once", mine.size());
  std::vector<PackedFinding> all(static_cast<std::size_t>(comm.size()) * most_findings);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    PackedFinding& p = all[static_cast<std::size_t>(comm.rank()) * most_findings + i];
    put(p.what, sizeof(p.what), mine[i].what);
    put(p.where, sizeof(p.where), mine[i].where);
    put(p.result, sizeof(p.result), mine[i].result);
    put(p.advice, sizeof(p.advice), mine[i].advice);
    p.verdict = mine[i].verdict;
  }
  comm.all_gather(all.data(), static_cast<std::int64_t>(most_findings * sizeof(PackedFinding)));
  Findings found;
  for (const PackedFinding& p : all)
    if (p.what[0] != '\0') found.push_back({p.what, p.where, p.result, p.verdict, p.advice});
  return found;
}

const char* word_of(Verdict verdict) {
  return verdict == Verdict::good ? "ok" : verdict == Verdict::note ? "note" : "PROBLEM";
}

// Every rank calls it; rank 0 prints, or with --json adds to `list`. Returns the number of problems on every rank.
int show(Communicator& comm, const Findings& mine, nlohmann::ordered_json* list) {
  int problems = 0;
  for (const Finding& f : gather(comm, mine)) {
    problems += f.verdict == Verdict::problem ? 1 : 0;
    if (comm.rank() != 0) continue;
    if (list != nullptr) {
      list->push_back({{"verdict", f.verdict == Verdict::problem ? "problem" : word_of(f.verdict)},
                       {"what", f.what},
                       {"where", f.where},
                       {"result", f.result},
                       {"advice", f.advice}});
      continue;
    }
    fmt::print("{:<8} {:<16} {:<20} {}\n", word_of(f.verdict), f.what, f.where, f.result);
    if (!f.advice.empty()) fmt::print("{:<8} {:<16} {:<20} -> {}\n", "", "", "", f.advice);
    std::fflush(stdout);
  }
  return problems;
}

void run_doctor(const DoctorOptions& o, Session& session) {
  Communicator& comm = *session.comm;
  const Stopwatch clock;
  nlohmann::ordered_json findings = nlohmann::ordered_json::array(), *list = o.json ? &findings : nullptr;
  Device device = Device::cpu;
  int problems = show(comm, check_host(comm, o), list);
  problems += show(comm, check_ranks(comm, o), list);
  problems += show(comm, check_messages(comm), list);
  problems += show(comm, check_gpu(comm, device), list);
  if (device == Device::cuda) problems += show(comm, check_gpu_links(comm), list);
  const double seconds = clock.seconds();
  if (o.json && comm.rank() == 0)
    print_json({{"fit", problems == 0},
                {"problems", problems},
                {"ranks", comm.size()},
                {"seconds", seconds},
                {"findings", findings}});
  if (problems > 0) throw user_error("{} found; see above for what to do about each", counted(problems, "problem"));
  if (comm.rank() == 0 && !o.json)
    fmt::print("fit to train: {} checked in {:.0f} s\n", counted(comm.size(), "rank"), seconds);
}

}  // namespace

void add_doctor(CLI::App& app, Session& session) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* doctor =
      app.add_subcommand("doctor", "Check this machine, or under mpirun all of them, and report problems");
  doctor->add_option("--directory", o->directory, "where runs and datasets are; default: the current directory");
  doctor->add_option("--megabytes", o->megabytes, "written and read back on each host")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  add_json_option(*doctor, o->json);
  doctor->callback([o, &session] { run_doctor(*o, session); });
}

}  // namespace longstride
