// Standard input, output and error, in whatever state the caller has left them. A command whose output cannot be
// written has failed; messages and progress that cannot be written are lost.
#pragma once
#include <string>

namespace longstride {

// Opens closed standard descriptors on /dev/null, before another file takes their numbers. Writing to a standard output
// that was closed still fails.
void open_closed_streams();
// Sends log lines to standard error.
void log_to_standard_error();
// "longstride: <message>", on standard error.
void print_error(const std::string& message);
// UserError if something that was printed has not reached standard output.
void check_output_written();

}  // namespace longstride
