# Kernels for Hopper, compiled for the CPU: the headers under include/ stand in for CUDA's and for kernels/gpu. Not next to
# the real ones, which define the same functions.
if(NOT LONGSTRIDE_CUDA)
  longstride_tests(emulated USES kernels)
  target_include_directories(test_emulated BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/emulated/include)
  # As nvcc does. Kernels call their shared memory `memory`, which is a variable here.
  target_compile_definitions(test_emulated PRIVATE __CUDACC__)
  target_compile_options(test_emulated PRIVATE -include cuda_runtime.h -Wno-unknown-pragmas -Wno-shadow)
endif()
