// A second copy of every checkpoint, in another place: a local disk when the run is on a shared one, or the reverse.
// The mirror of a run is a directory like the run's own, MIRROR/checkpoints/step-00001000/, so that eval, sample and
// export take it in the run's stead.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace longstride {

// Copies the checkpoint of `step`, comparing every file with the checksum in state.json on the way, then deletes the
// mirror's oldest beyond `keep` (0: keeps all). UserError when a file of the run is not what was written, or the mirror
// cannot be written; the mirror's earlier checkpoints stay. For one rank: the mirror's only writer.
void mirror_checkpoint(const std::string& run, std::int64_t step, const std::string& mirror, std::int64_t keep);

// Copies the mirror's newest whole checkpoint into the run when the run has none that is as new and whole; returns its
// step. Checkpoints that are not whole are passed over with a warning.
std::optional<std::int64_t> restore_from_mirror(const std::string& run, const std::string& mirror);

}  // namespace longstride
