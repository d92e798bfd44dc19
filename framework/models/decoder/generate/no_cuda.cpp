// Replaces generation in one kernel, at link time, in a build without CUDA.
#include <stdexcept>

#include "framework/models/decoder/generate/generate.h"

namespace longstride::generation {
namespace {

[[noreturn]] void absent() { throw std::runtime_error("this build of Longstride has no CUDA kernels"); }

}  // namespace

void generate(const Args&, const Launch&) { absent(); }
bool supports(const ModelShape&) { return false; }
std::size_t generator_bytes(const ModelShape&) { absent(); }
std::shared_ptr<const Generator> make_generator(const ModelShape&, const Weights&, void*, const Launch&) { absent(); }

}  // namespace longstride::generation
