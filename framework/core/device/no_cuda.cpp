// Replaces driver_cuda.cpp, at link time, in a build without CUDA: there is no GPU.
#include "framework/core/device/device.h"
#include "framework/core/device/driver.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

[[noreturn]] void absent() { throw InternalError("this build of Longstride has no CUDA"); }

}  // namespace

bool built_with_cuda() { return false; }
int device_count() { return 0; }
DeviceInfo device_info() { absent(); }
void use_device(int) { absent(); }
int used_device() { absent(); }
std::string device_identity() { absent(); }
std::string device_links(int) { absent(); }

namespace driver {

Handle allocate(std::size_t) { absent(); }
Handle allocate_pinned(std::size_t) { absent(); }
void copy_to_device(void*, const void*, std::size_t, void*) { absent(); }
void copy_to_host(void*, const void*, std::size_t, void*) { absent(); }
void zero(void*, std::size_t, void*) { absent(); }
Handle make_stream() { absent(); }
void synchronize(void*) { absent(); }
Handle make_event() { absent(); }
void record(void*, void*) { absent(); }
void await(void*) { absent(); }
void stream_waits(void*, void*) { absent(); }
double milliseconds_between(void*, void*) { absent(); }
Handle capture(void*, const std::function<void()>&) { absent(); }
void replay(void*, void*) { absent(); }

}  // namespace driver

}  // namespace longstride
