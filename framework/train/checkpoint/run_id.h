// A run's id: 32 hexadecimal digits, drawn when the run starts and written to every state.json. It tells runs apart
// whose names and mirrors are the same. Its files of tensors do not have it, so that the same training gives the same
// files; state.json has their checksums. Runs of versions that drew no id get one when they are resumed.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

std::string draw_run_id();
// False if one of them is empty.
bool of_different_runs(const std::string& a, const std::string& b);

// The account that a run's own records give of its starts, before it has a checkpoint.
struct Beginning {
  bool recorded = false;  // it has begun
  std::string id;         // empty: with a version that drew none
};

// The id of the run whose checkpoints `run`, or else `mirror`, holds; empty if they have none. Reads every state.json
// and skips those that cannot be read. UserError if there are checkpoints of two runs. Those without an id may belong
// to the run, unless they are a mirror's and later than the run's first with an id: those would have one. A run that
// has begun takes no id from a mirror, one that is lost does.
std::string id_of_run(const std::string& run, const std::string& mirror, const Beginning& beginning = {});

// True if the newest checkpoint of `mirror` whose state.json has an id is of another run.
bool holds_other_run(const std::string& mirror, const std::string& run_id);

}  // namespace longstride
