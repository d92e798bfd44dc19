# CUDA is optional. Without a GPU at run time the same program computes on the CPU.
find_package(CUDAToolkit QUIET)
set(LONGSTRIDE_CUDA OFF)
if(CUDAToolkit_FOUND AND NOT LONGSTRIDE_SANITIZE AND NOT LONGSTRIDE_FUZZERS)
  set(LONGSTRIDE_CUDA ON)
  if(NOT CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  # Code for Ampere and Hopper, and PTX that the driver compiles for later GPUs. Kernels written for Hopper (*_sm90.cu)
  # are built for it alone: see Rooms.cmake.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 80-virtual CACHE STRING "GPUs to build the portable kernels for")
  enable_language(CUDA)
  # CMake before 3.26 does not know that nvcc supports C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
endif()
