# Only longstride_attention, which needs OpenMP, fmt and, for GPUs, the CUDA toolkit.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
include(Cuda)
longstride_room(kernels PATH kernels FOLDERS attention base block_lists distance_attention gpu repeat_heads scan
  OPTIONS ${longstride_kernel_options}
  LINK PUBLIC OpenMP::OpenMP_CXX fmt::fmt)
if(LONGSTRIDE_CUDA)
  target_link_libraries(longstride_kernels PUBLIC CUDA::cudart)
endif()
include(AttentionLibrary)
include(PackageConfig)
