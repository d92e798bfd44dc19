// A polite end: SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask the run to stop; it saves at the next step boundary and exits
// with 0. A SIGHUP that was ignored at the start, as under nohup, stays ignored. SIGPIPE is ignored from then on: a
// closed pipe loses progress lines, not the work.
//
//   catch_stop_signals();
//   while (step < steps) { ...; if (comm.any(stop_requested())) { save; break; } }
//
// A second SIGINT ends the process at once. Open MPI's mpirun passes SIGUSR1 on to its ranks and ends with their exit
// code. When it gets SIGTERM or SIGINT itself, it passes SIGTERM on, kills what is left a second or two later and ends
// with 1; `--mca odls_base_sigkill_timeout SECONDS` grants more time to save.
#pragma once

namespace longstride {

void catch_stop_signals();
bool stop_requested();
// From `seconds` after this call on, a stop is requested: for a limit of time. Another call moves the limit.
void request_stop_after(double seconds);
int stop_signal();          // which one came; 0: none, or a limit of time
void clear_stop_request();  // for a process that goes on: signals and limit

}  // namespace longstride
