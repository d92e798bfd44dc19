// A second copy of every checkpoint, elsewhere: on a local disk when the run is on a shared one, or the reverse. The
// mirror of a run has the same layout, MIRROR/checkpoints/step-00001000/, so eval, sample and export accept it in place
// of the run.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace longstride {

// Copies the checkpoint of `step`, comparing every file with the checksum in state.json on the way, then deletes the
// mirror's oldest beyond `keep` (0: keeps all). With `keep_best` the run's best checkpoint stays in the mirror too, and
// is copied if it is not there, as when a mirror was added to a run that had begun. UserError when a file of the run
// has changed since it was written, or when the mirror cannot be written or holds another run's (run_id.h); the
// mirror's earlier checkpoints stay. For one rank: the mirror's only writer. `check` throws a UserError if that is no
// longer so; it is called before anything is written, named or deleted there.
void mirror_checkpoint(const std::string& run, std::int64_t step, const std::string& mirror, std::int64_t keep,
                       bool keep_best = false, const std::function<void()>& check = {});

// Copies the mirror's newest whole checkpoint into the run unless the run has a whole one that is as new; returns its
// step. Checkpoints that are not whole are skipped with a warning. With `keep_best` the mirror's best checkpoint is
// also copied if the run lacks it. UserError, before anything is copied, if the mirror is another run's, or if `accept`
// throws it, which gets the one of the two directories whose newest checkpoint counts.
std::optional<std::int64_t> restore_from_mirror(const std::string& run, const std::string& mirror,
                                                bool keep_best = false,
                                                const std::function<void(const std::string&)>& accept = {});

}  // namespace longstride
