// Rules for --output, the same for every command. An existing file is replaced only with --force; a pipe or a device is
// written through; a folder is created, or, if it holds something, written into only with --force. A command never
// replaces what it reads. A run's own folders and files (RUN/samples, RUN/report.html) need no --force. `prepare` has
// the same rules in datasets/prepare/dataset_writer.h.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "launch/console/new_folders.h"

namespace longstride {

// UserError if `path`, the value of `option`, cannot be written to, exists and may not be replaced, is one of the
// inputs, or is '-'.
void check_output_file(const std::string& path, bool replace, const std::vector<std::string>& inputs,
                       const char* option = "--output");

// The same for a picture, which is written as PNG: UserError also if the name ends like another kind of file.
void check_picture_file(const std::string& path, bool replace, const std::vector<std::string>& inputs,
                        const char* option = "--output");

// UserError if the name ends like another kind of file than `expected`, such as ".png"; `what` says what is written.
void check_ending(const std::string& path, const char* expected, const char* what, const char* option = "--output");

// UserError if standard output, which `json` promises to a JSON object alone, is `path` as well.
void check_json_output(bool json, const std::string& path);

// Creates the folder if it does not exist. UserError if it cannot be created, holds something and may not be written
// into, or holds one of the inputs. The result removes it at its end if nothing was written into it.
[[nodiscard]] NewFolders make_output_folder(const std::string& path, bool replace,
                                            const std::vector<std::string>& inputs);

// Removes from a folder of a run what an earlier command has left there: the files whose names begin like one of
// `beginnings`, except those in `kept`.
void remove_older_files(const std::string& folder, const std::vector<std::string>& beginnings,
                        const std::set<std::string>& kept);

// True if both exist and are the same.
bool is_same_place(const std::string& a, const std::string& b);

// Prints "<path>: <what>", on standard error if the output is a pipe or a device, which may be standard output itself.
void print_written(const std::string& path, const std::string& what);

}  // namespace longstride
