// What --output may name, the same for every command. A file that exists is replaced with --force only; a pipe or a
// device is written through; a folder is made, and written into with --force only when it holds something. What the
// command reads is never replaced. Folders and files that are a run's own (RUN/samples, RUN/report.html) need no
// --force. `prepare` has the same rules in datasets/prepare/dataset_writer.h.
#pragma once
#include <string>
#include <vector>

namespace longstride {

// UserError when `path` cannot be written to, exists and is not to be replaced, or is one of the inputs.
void check_output_file(const std::string& path, bool replace, const std::vector<std::string>& inputs);

// Makes the folder where there is none. UserError when it cannot be made, holds something and is not to be written
// into, or holds one of the inputs.
void make_output_folder(const std::string& path, bool replace, const std::vector<std::string>& inputs);

// Whether both are there and one.
bool is_same_place(const std::string& a, const std::string& b);

// Prints "<path>: <what>", on standard error where the output is a stream, which may be standard output itself.
void print_written(const std::string& path, const std::string& what);

}  // namespace longstride
