# The project's dependencies. Required: a C++20 compiler, OpenMP, OpenBLAS, MPI, HDF5, yaml-cpp, libpng, zlib,
# libcrypto, CLI11, spdlog, fmt, nlohmann-json. Optional, and reported at configure time: CUDA, NCCL, libarchive,
# libjpeg, libwebp, libsndfile, soxr, SentencePiece.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
if(LONGSTRIDE_FUZZERS)
  # clang's OpenMP runtime is often not installed, and the readers that are fuzzed need no threads.
  find_package(OpenMP COMPONENTS CXX)
  if(NOT TARGET OpenMP::OpenMP_CXX)
    add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)
  endif()
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)

# yaml-cpp 0.7 exports yaml-cpp, 0.8 yaml-cpp::yaml-cpp.
if(NOT TARGET yaml-cpp AND TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()

# The C++ bindings of MPI are obsolete and full of warnings.
target_compile_definitions(MPI::MPI_CXX INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

add_library(longstride_hdf5 INTERFACE)
add_library(longstride::hdf5 ALIAS longstride_hdf5)
target_include_directories(longstride_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(longstride_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
target_compile_definitions(longstride_hdf5 INTERFACE ${HDF5_C_DEFINITIONS})

find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread openblas-openmp x86_64-linux-gnu REQUIRED)
find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED)
add_library(longstride_openblas INTERFACE)
add_library(longstride::openblas ALIAS longstride_openblas)
target_include_directories(longstride_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
target_link_libraries(longstride_openblas INTERFACE ${OPENBLAS_LIBRARY})

# Needed only to read archives, .npz files, and text compressed by xz, bzip2 or zstd.
pkg_check_modules(LIBARCHIVE IMPORTED_TARGET libarchive)

# Only `prepare images` needs these, each for the pictures of its name.
pkg_check_modules(JPEG IMPORTED_TARGET libjpeg)
pkg_check_modules(WEBP IMPORTED_TARGET libwebp libwebpdemux)

# Only `prepare audio` needs these, and it needs both.
pkg_check_modules(SNDFILE IMPORTED_TARGET sndfile)
pkg_check_modules(SOXR IMPORTED_TARGET soxr)
if(SNDFILE_FOUND AND SOXR_FOUND)
  set(LONGSTRIDE_AUDIO ON)
else()
  set(LONGSTRIDE_AUDIO OFF)
endif()

# Needed only to make tokens of text.
pkg_check_modules(SENTENCEPIECE IMPORTED_TARGET sentencepiece)

include(Cuda)

# Training on several GPUs needs NCCL; without it several ranks compute on the CPU.
set(LONGSTRIDE_NCCL OFF)
if(LONGSTRIDE_CUDA)
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
  if(NCCL_INCLUDE AND NCCL_LIBRARY)
    set(LONGSTRIDE_NCCL ON)
    add_library(longstride_nccl_library INTERFACE)
    add_library(longstride::nccl ALIAS longstride_nccl_library)
    target_include_directories(longstride_nccl_library SYSTEM INTERFACE ${NCCL_INCLUDE})
    target_link_libraries(longstride_nccl_library INTERFACE ${NCCL_LIBRARY} CUDA::cudart)
  endif()
endif()
