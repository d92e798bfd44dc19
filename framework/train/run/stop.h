// Stopping cleanly: on SIGTERM, SIGINT, SIGUSR1 or SIGHUP the run saves at the next step boundary and exits with 0. A
// SIGHUP that was ignored at the start, as under nohup, stays ignored. SIGPIPE is ignored, so a closed pipe loses
// progress lines but no work.
//
//   catch_stop_signals();
//   while (step < steps) { ...; if (comm.any(stop_requested())) { save; break; } }
//
// A second SIGINT ends the process at once, whatever came between the two; the other signals never do, however often
// they come. Open MPI's mpirun passes SIGUSR1 on to its ranks and ends with their exit code. When it gets SIGTERM or
// SIGINT itself, it passes SIGTERM on, kills what is left a second or two later and ends with 1; `--mca
// odls_base_sigkill_timeout SECONDS` allows more time for saving.
#pragma once

namespace longstride {

// A process says this at the first SIGINT, and at the first of the other signals: lines for standard error, or null.
struct StopNotices {
  const char* interrupted = nullptr;
  const char* asked = nullptr;
};

void catch_stop_signals(StopNotices notices = {});
bool stop_requested();
// Requests a stop `seconds` after this call, for a time limit. Another call moves the limit.
void request_stop_after(double seconds);
int stop_signal();          // the signal received; 0: none, or a time limit
void clear_stop_request();  // signals and limit, for a process that continues

// A command that trains says these.
inline constexpr StopNotices training_stops = {"stopping after this step; Ctrl-C again to stop now\n",
                                               "stopping after this step\n"};

}  // namespace longstride
