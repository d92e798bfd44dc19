// Refuses to run on a processor without the instructions that this build uses, instead of dying by SIGILL.
#pragma once

namespace longstride {

// Ends the process with exit code 2 and one sentence if the processor lacks an instruction set that this build was
// compiled for. main.cpp has it called before any constructor, ours or a library's, since those may use it already; so
// it uses no more than system calls.
void refuse_older_processor(int argc, char** argv, char** environment);

}  // namespace longstride
