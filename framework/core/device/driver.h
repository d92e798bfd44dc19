// The parts of CUDA that Block, Stream, Event and Graph need: driver_cuda.cpp, or no_cuda.cpp in a build without it.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace longstride::driver {

// Memory or a CUDA object, with its deleter.
using Handle = std::unique_ptr<void, void (*)(void*)>;
inline Handle no_handle() { return {nullptr, nullptr}; }

Handle allocate(std::size_t bytes);  // UserError when it does not fit, naming what is free and what to change
Handle allocate_pinned(std::size_t bytes);

void copy_to_device(void* device, const void* host, std::size_t bytes, void* stream);
void copy_to_host(void* host, const void* device, std::size_t bytes, void* stream);
void zero(void* memory, std::size_t bytes, void* stream);

Handle make_stream();  // the deleter waits for the stream's work
void synchronize(void* stream);

Handle make_event();
void record(void* event, void* stream);
void await(void* event);                       // blocks the host
void stream_waits(void* stream, void* event);  // blocks the stream only
double milliseconds_between(void* begin, void* end);

Handle capture(void* stream, const std::function<void()>& work);
void replay(void* graph, void* stream);

}  // namespace longstride::driver
