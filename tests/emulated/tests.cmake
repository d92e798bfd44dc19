# Attention's kernels for Hopper and for other GPUs, with and without a distance term, decoding, products by panels, the
# scan's, its features and what is around it, and the embedding's, compiled for the CPU: the headers under include/ stand
# in for CUDA's and for kernels/gpu.
# Not next to the real ones, which define the same functions.
if(NOT LONGSTRIDE_CUDA)
  set(attention ${PROJECT_SOURCE_DIR}/kernels/attention)
  set(distance ${PROJECT_SOURCE_DIR}/kernels/distance_attention)
  file(GLOB emulated CONFIGURE_DEPENDS ${attention}/sm90/*.cpp ${attention}/sm90/*/*.cpp ${attention}/sm90/*/*.cu
    ${attention}/portable/*.cpp ${attention}/portable/*.cu ${distance}/gpu/*.cu ${distance}/sm90/*.cpp
    ${distance}/sm90/*.cu ${PROJECT_SOURCE_DIR}/kernels/scan/*.cu ${PROJECT_SOURCE_DIR}/kernels/scan/walk/*.cu
    ${PROJECT_SOURCE_DIR}/kernels/scan/sm90/*.cu
    ${PROJECT_SOURCE_DIR}/kernels/scan/*_cuda.cpp ${PROJECT_SOURCE_DIR}/kernels/features/*.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/emulated/machine/*.cpp)
  set(kernels ${PROJECT_SOURCE_DIR}/kernels)
  list(APPEND emulated ${attention}/attention_cuda.cpp ${attention}/delta.cu ${attention}/bounds_from_keys.cu
    ${attention}/decode/decode_cuda.cu ${distance}/decode/distance_decode_cuda.cu
    ${distance}/gpu/distance_attention_cuda.cpp
    ${kernels}/draw/draw_cuda.cu ${kernels}/softmax_cross_entropy/softmax_cross_entropy_cuda.cu ${kernels}/base/add_partials_cuda.cu ${kernels}/block_lists/block_lists_cuda.cu
    ${kernels}/bands/bands_cuda.cu ${kernels}/embedding/embedding_cuda.cu ${kernels}/embedding/embedding_backward_cuda.cu
    ${kernels}/gated_norm/gated_norm_cuda.cu ${kernels}/scan_gates/scan_gates_cuda.cu
    ${kernels}/repeat_heads/repeat_heads_cuda.cu ${kernels}/scale_heads/scale_heads_cuda.cu
    ${kernels}/short_convolution/short_convolution_cuda.cu
    ${kernels}/mean_rows/mean_rows_cuda.cu ${kernels}/merge_parts/merge_parts_cuda.cu ${kernels}/binary_loss/binary_loss_cuda.cu
    ${kernels}/span_loss/span_loss_cuda.cu ${kernels}/global_rows/global_rows_cuda.cu
    ${kernels}/group_contrast/group_contrast_cuda.cu
    ${kernels}/gemm/gemm_gelu_sm90.cu ${kernels}/gemm/gemm_panels_sm90.cu)
  add_library(emulated_kernels OBJECT ${emulated})
  list(FILTER emulated INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${emulated} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -xc++)
  # A macro of CUDA's that the C++ library has as a word of its own.
  set_source_files_properties(${kernels}/draw/draw_cuda.cu PROPERTIES COMPILE_OPTIONS "-xc++;-D__noinline__=")
  longstride_flags(emulated_kernels)
  target_link_libraries(emulated_kernels PUBLIC longstride_kernels)
  set_target_properties(emulated_kernels PROPERTIES UNITY_BUILD OFF)
  # As nvcc does, and as the kernels' own build: products and sums become one operation. Kernels call their shared memory
  # `memory`, which is a variable here.
  target_include_directories(emulated_kernels BEFORE PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/emulated/include)
  target_compile_definitions(emulated_kernels PUBLIC __CUDACC__ LONGSTRIDE_CUDA)
  target_compile_options(emulated_kernels PUBLIC -include cuda_runtime.h -Wno-unknown-pragmas -Wno-shadow
    -ffp-contract=fast $<$<CXX_COMPILER_ID:GNU>:-fno-extern-tls-init>)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # gcc joins products and sums by the second option only.
    target_compile_options(emulated_kernels PRIVATE -O1 $<$<CXX_COMPILER_ID:GNU>:-fexpensive-optimizations>)
  endif()
  longstride_tests(emulated LINK emulated_kernels LEAVE_OUT /machine/
    SLOW In/EmulatedFeaturesOften.* EmulatedOneQuery.IsAsGoodAsNaiveForEveryPattern
    Shapes/EmulatedPanels.*/500_x_* Shapes/EmulatedPanels.*/800_x_* Shapes/EmulatedPanels.*/1100_x_*
    Cases/EmulatedDistanceKernels.*memories* Cases/EmulatedDistanceKernels.*/heads_of_*
    Cases/EmulatedDistanceKernels.*of_heads_of_64 Cases/EmulatedDistanceKernels.*/dilated_heads_of_64
    Shapes/EmulatedKernels.*/*_labels__n_130* Shapes/EmulatedKernels.*/*_places__n_200*
    Shapes/EmulatedKernels.*/*_lists_of_64__n_1300* Shapes/EmulatedKernels.*/*_lists_of_64__n_900*)
  foreach(target test_emulated test_emulated_slow)
    target_include_directories(${target} BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/emulated/include)
  endforeach()
endif()
