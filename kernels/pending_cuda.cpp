// What has no CUDA kernel yet. Every function here stands for one that is still to be written.
#include <stdexcept>

#include "kernels/attention/decode.h"

namespace longstride::kernels::cuda {
namespace {

[[noreturn]] void absent() { throw std::runtime_error("this operation has no CUDA kernel yet"); }

}  // namespace

void append(const AppendArgs&, const Launch&) { absent(); }
void decode(const DecodeArgs&, const Launch&) { absent(); }

}  // namespace longstride::kernels::cuda
