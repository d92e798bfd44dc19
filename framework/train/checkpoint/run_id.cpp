#include "framework/train/checkpoint/run_id.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_state.h"

namespace longstride {
namespace {

// Empty when the checkpoint has none, or its state.json cannot be read.
std::string id_in(const std::string& run, std::int64_t step) try {
  const std::string path = inside(checkpoint_directory(run, step), checkpoint_names::state);
  return parse_manifest(read_at_most(path), path).state.run_id;
} catch (const UserError&) {
  return "";
}

std::string shown(const std::string& id) { return printable(id.substr(0, 8)); }

struct Identity {
  std::string id;
  std::int64_t step = 0;  // the first that has it
};

Identity identity_of(const std::string& run) {
  Identity found;
  for (const std::int64_t step : checkpoint_steps(run)) {
    const std::string id = id_in(run, step);
    if (of_different_runs(id, found.id))
      throw user_error(
          "{}: its checkpoints of steps {} and {} are of two runs (run_id {}... and {}...); move those of one away",
          run, found.step, step, shown(found.id), shown(id));
    if (found.id.empty()) found = {id, step};
  }
  return found;
}

}  // namespace

std::string draw_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

bool of_different_runs(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

std::string id_of_run(const std::string& run, const std::string& mirror, const Beginning& beginning) {
  constexpr const char* advice = "choose another folder with train.mirror, or move that one away";
  Identity own = identity_of(run);
  if (of_different_runs(own.id, beginning.id))
    throw user_error(
        "{}: its checkpoint of step {} is of another run than its records (run_id {}... and {}...); move it away", run,
        own.step, shown(own.id), shown(beginning.id));
  if (own.id.empty()) own = {beginning.id, std::numeric_limits<std::int64_t>::max()};  // no checkpoint has it yet
  const std::vector<std::int64_t> copies = mirror.empty() ? std::vector<std::int64_t>() : checkpoint_steps(mirror);
  if (copies.empty()) return own.id;
  const Identity second = identity_of(mirror);
  if (of_different_runs(own.id, second.id))
    throw user_error("{}: holds checkpoints of another run than {} (run_id {}... and {}...); {}", mirror, run,
                     shown(second.id), shown(own.id), advice);
  if (!own.id.empty() && second.id.empty() && copies.back() > own.step)
    throw user_error("{}: its checkpoint of step {} is of another run than {}, whose step {} has a run_id already; {}",
                     mirror, copies.back(), run, own.step, advice);
  // A run of before would have got its id together with the first copy that has one.
  if (own.id.empty() && beginning.recorded && !second.id.empty())
    throw user_error("{}: holds checkpoints of another run than {} (run_id {}...), which has begun without them; {}",
                     mirror, run, shown(second.id), advice);
  return own.id.empty() ? second.id : own.id;
}

bool holds_other_run(const std::string& mirror, const std::string& run_id) {
  const std::vector<std::int64_t> steps = checkpoint_steps(mirror);
  for (auto step = steps.rbegin(); step != steps.rend() && !run_id.empty(); ++step)
    if (const std::string id = id_in(mirror, *step); !id.empty()) return of_different_runs(id, run_id);
  return false;
}

}  // namespace longstride
