// Standard input, output and error, in whatever state the caller has left them. Output is what a command is for: when
// it cannot be written the command has failed. Messages and progress are not: what cannot be written of them is lost.
#pragma once
#include <string>

namespace longstride {

// Opens on /dev/null the standard descriptors that are closed, before the next file takes their numbers. Writing to a
// standard output that was closed still fails.
void open_closed_streams();
// The log's lines, on standard error.
void log_to_standard_error();
// "longstride: <message>", on standard error.
void print_error(const std::string& message);
// UserError when something that was printed has not reached standard output.
void check_output_written();

}  // namespace longstride
