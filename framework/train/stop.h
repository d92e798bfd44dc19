// A polite end: SIGTERM, SIGINT and SIGUSR1 ask the run to stop; it saves at the next step boundary and exits with 0.
//
//   catch_stop_signals();
//   while (step < steps) { ...; if (comm.any(stop_requested())) { save; break; } }
//
// A second SIGINT ends the process at once. mpirun passes SIGUSR1 on and waits; on SIGTERM and SIGINT it gives its
// ranks one second before it kills them (--mca odls_base_sigkill_timeout SECONDS grants more).
#pragma once

namespace longstride {

void catch_stop_signals();
bool stop_requested();
int stop_signal();          // which one came; 0: none
void clear_stop_request();  // for a process that goes on

}  // namespace longstride
