// Stands in, at link time, for the GPU of a build that has no CUDA: there is none.
#include "framework/core/device/device.h"
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

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) { absent(); }
DeviceMemory::~DeviceMemory() = default;
PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) { absent(); }
PinnedMemory::~PinnedMemory() = default;
Stream::Stream() { absent(); }
Stream::~Stream() = default;
void Stream::wait(const Event&) const { absent(); }
Event::Event() { absent(); }
Event::~Event() = default;
void Event::record(void*) { absent(); }
void Event::wait() const { absent(); }
double Event::milliseconds_since(const Event&) const { absent(); }
Graph::~Graph() = default;
void Graph::discard() {}
void Graph::capture(void*, const std::function<void()>&) { absent(); }
void Graph::replay(void*) const { absent(); }
void copy_to_device(void*, const void*, std::size_t, void*) { absent(); }
void copy_to_host(void*, const void*, std::size_t, void*) { absent(); }
void zero_on_device(void*, std::size_t, void*) { absent(); }
void synchronize(void*) { absent(); }

}  // namespace longstride
