#include <unistd.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"
#include "launch/doctor/doctor_checks.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_command = 160;

// Files under one of `places` that a process maps into its memory, as far as this user may see.
std::set<std::string> mapped_files(const std::vector<std::string>& places) {
  std::set<std::string> found;
  std::error_code error;
  for (const std::string& process : entries_of("/proc", error)) {
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      const std::size_t at = line.find('/');
      if (at == std::string::npos) continue;
      for (const std::string& place : places)
        if (line.compare(at, place.size(), place) == 0) found.insert(line.substr(at));
    }
  }
  return found;
}

// Files of jobs in shared memory and in the folder for temporary files: in use, or left by a dead job.
struct Traces {
  std::vector<std::string> segments, sessions;  // dead jobs' files, which this user may remove
  std::set<std::string> others;
  std::uint64_t bytes = 0;  // size of the dead jobs' files
};

// Jobs that end meanwhile remove their files, so what cannot be read counts as empty.
std::uint64_t bytes_of(const std::string& path) {
  struct stat s = {};
  if (::lstat(path.c_str(), &s) != 0) return 0;
  std::uint64_t bytes = S_ISREG(s.st_mode) ? static_cast<std::uint64_t>(s.st_size) : 0;
  if (!S_ISDIR(s.st_mode)) return bytes;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    bytes += bytes_of(at->path().string());
  return bytes;
}

bool removable(const std::string& path) {
  struct stat s = {};
  return ::lstat(path.c_str(), &s) == 0 && (::geteuid() == 0 || s.st_uid == ::geteuid());
}

bool begins_with_one_of(const std::string& name, std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  return false;
}

void find_segments(const std::string& place, const std::set<std::string>& mapped, Traces& traces) {
  std::error_code error;
  for (const std::string& path : entries_of(place, error)) {
    if (!begins_with_one_of(fs::path(path).filename().string(), {"vader_segment.", "sm_segment.", "nccl-"})) continue;
    if (mapped.contains(path) || !removable(path) || !fs::is_regular_file(path, error)) {
      traces.others.insert(path);
      continue;
    }
    traces.segments.push_back(path);
    traces.bytes += bytes_of(path);
  }
}

// ompi.<host>.<user>/pid.<mpirun's pid> or jf.<job>, where mpirun and the daemons map files.
bool session_in_use(const fs::path& session, const std::set<std::string>& mapped) {
  const std::string name = session.filename().string(), inside = session.string() + "/";
  const auto first = mapped.lower_bound(inside);
  if (first != mapped.end() && first->starts_with(inside)) return true;
  std::error_code error;
  return name.starts_with("pid.") && fs::exists("/proc/" + name.substr(4), error);
}

void find_sessions(const std::string& place, const std::set<std::string>& mapped, Traces& traces) {
  std::error_code error;
  for (const fs::path folder : entries_of(place, error)) {
    if (!folder.filename().string().starts_with("ompi.")) continue;
    for (const std::string& path : entries_of(folder.string(), error)) {
      if (!begins_with_one_of(fs::path(path).filename().string(), {"pid.", "jf."})) continue;
      if (session_in_use(path, mapped) || !removable(path)) {
        traces.others.insert(path);
        continue;
      }
      traces.sessions.push_back(path);
      traces.bytes += bytes_of(path);
    }
  }
}

// The path, or a pattern that matches it and none of the others: all jobs of its host and user, or its job.
std::string pattern_of(const std::string& path, const std::set<std::string>& others) {
  const std::size_t name = path.rfind('/') + 1;
  for (int parts = 2; parts > 0; --parts) {
    std::size_t cut = path.size();
    for (int i = 0; i < parts && cut != std::string::npos && cut > name; ++i) cut = path.find_last_of(".-", cut - 1);
    if (cut == std::string::npos || cut <= name) continue;
    const std::string beginning = path.substr(0, cut + 1);
    const auto other = others.lower_bound(beginning);
    if (other == others.end() || !other->starts_with(beginning)) return beginning + "*";
  }
  return path;
}

std::string command_for(const Traces& traces) {
  std::vector<std::string> names;
  for (const std::vector<std::string>* paths : {&traces.sessions, &traces.segments}) {
    std::set<std::string> patterns;
    for (const std::string& path : *paths) patterns.insert(pattern_of(path, traces.others));
    names.insert(names.end(), patterns.begin(), patterns.end());
  }
  std::string command = "rm -r";
  std::size_t taken = 0;
  for (; taken < names.size() && (taken == 0 || command.size() + names[taken].size() < longest_command); ++taken)
    command += " " + names[taken];
  if (taken == names.size()) return command;
  return fmt::format("{} (and {} more: then run the doctor again)", command, names.size() - taken);
}

}  // namespace

Finding find_leftovers(const std::string& host, const std::string& shared, const std::string& scratch) {
  Traces traces;
  std::error_code absent;  // the kernel names mapped files without links
  const std::string shared_memory = fs::canonical(shared, absent).string();
  const std::string temporary = fs::canonical(scratch, absent).string();
  const std::set<std::string> mapped = mapped_files({shared_memory + "/", temporary + "/ompi."});
  find_segments(shared_memory, mapped, traces);
  find_sessions(temporary, mapped, traces);
  if (traces.segments.empty() && traces.sessions.empty()) return {"leftovers", host, "none from dead jobs"};
  return {
      "leftovers", host,
      fmt::format("{} in {} and {} in {} from dead jobs, {:.1f} MiB", counted(std::ssize(traces.segments), "segment"),
                  shared_memory, counted(std::ssize(traces.sessions), "folder"), temporary,
                  static_cast<double>(traces.bytes) / (1 << 20)),
      Verdict::note, "no process seen from here uses them: " + command_for(traces)};
}

}  // namespace longstride
