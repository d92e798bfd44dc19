#include <fmt/ranges.h>

#include "framework/core/files/disk.h"
#include "launch/doctor/doctor_checks.h"

namespace longstride {

Finding examine_file_system(const std::string& host, const std::string& directory) {
  const DiskLimits limits = limits_of_disk(directory);
  Finding f{"file system", host, "has all that runs and datasets use"};
  if (!limits.lacks.empty()) {
    f.result = fmt::format("lacks {}", fmt::join(limits.lacks, ", "));
    f.verdict = Verdict::note;
    f.advice =
        "runs and datasets work here; start a run on one host at a time, and expect a power failure to lose what was "
        "written last: set train.mirror to a folder on another disk";
  }
  if (!limits.folders.empty()) {
    f.result = fmt::format("cannot rename a folder that holds files ({})", limits.folders);
    f.verdict = Verdict::problem;
    f.advice =
        "checkpoints cannot be saved here: put runs on another disk, or mount a bucket so that it renames folders "
        "(gcsfuse --rename-dir-limit 100)";
  }
  return f;
}

}  // namespace longstride
