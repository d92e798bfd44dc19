// Stands in, at link time, for generation in one kernel in a build without CUDA.
#include <stdexcept>

#include "framework/models/sparse_transformer/generate/generate.h"

namespace longstride::kernels::cuda {
namespace {

[[noreturn]] void absent() { throw std::runtime_error("this build of Longstride has no CUDA kernels"); }

}  // namespace

void generate(const GenerateArgs&, const Launch&) { absent(); }
bool generates(const GenerateShape&) { return false; }
std::size_t generator_bytes(const GenerateShape&) { absent(); }
std::shared_ptr<const Generator> make_generator(const GenerateShape&, const GenerateWeights&, void*, const Launch&) {
  absent();
}

}  // namespace longstride::kernels::cuda
