// Marks functions that run on both the host and a GPU.
#pragma once

#if defined(__CUDACC__)
#define LONGSTRIDE_HOST_DEVICE __host__ __device__
#else
#define LONGSTRIDE_HOST_DEVICE
#endif
