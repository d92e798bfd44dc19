// Names of files being written, `.tmp-<name>-<process>@<host>`, and the removal of those left by a killed process.
#pragma once
#include <string>

namespace longstride {

// Next to `path`, for this process.
std::string temporary_path(const std::string& path);

// Removes from `directory` the temporaries of processes on this host that have ended, and those of other hosts that are
// older than a day. For directories that several processes write to; a process checks each directory once.
void remove_abandoned_temporaries(const std::string& directory);

// Removes all .tmp-* from `directory`. For the directory's only writer, while it is not writing.
void remove_temporaries(const std::string& directory);

}  // namespace longstride
