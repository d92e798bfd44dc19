# The kernels' benchmarks, kernels/**/*_bench.cpp, in one program: longstride_bench_kernels (-DLONGSTRIDE_BENCHMARKS=ON).
find_package(benchmark REQUIRED)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*_bench.cpp)
add_executable(longstride_bench_kernels ${sources})
longstride_flags(longstride_bench_kernels)
target_link_libraries(longstride_bench_kernels PRIVATE longstride_kernels longstride::openblas benchmark::benchmark_main)
