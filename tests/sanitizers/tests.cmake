# The sanitizers and the fuzzers as tests of the ordinary build: each builds what it needs in a separate folder.
if(NOT LONGSTRIDE_SANITIZE AND NOT LONGSTRIDE_FUZZERS)
  foreach(kind address-undefined thread fuzz)
    add_test(NAME sanitizers.${kind}
      COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${kind})
    set_tests_properties(sanitizers.${kind} PROPERTIES LABELS slow TIMEOUT 2700 RUN_SERIAL ON)
  endforeach()
endif()

# Only the few files that run on our own threads: compiling the rest would gain nothing. OpenMP's synchronisation is
# invisible to the sanitizer, so its loops are not tested.
if(LONGSTRIDE_SANITIZE STREQUAL "thread")
  set(threaded framework/train/step/prefetcher.cpp framework/train/run/run_lock.cpp kernels/base/check.cpp
    kernels/base/tensor.cpp framework/core/batch.cpp framework/core/device/memory.cpp
    framework/core/device/host_limits.cpp framework/core/device/no_cuda.cpp framework/core/files/files.cpp
    framework/core/files/disk.cpp framework/core/files/output_path.cpp framework/core/files/temporaries.cpp
    framework/core/text/printable.cpp framework/core/text/utf8.cpp tests/train/step/prefetcher_test.cpp
    tests/train/run/run_lock_test.cpp)
  list(TRANSFORM threaded PREPEND ${PROJECT_SOURCE_DIR}/)
  add_executable(test_threads EXCLUDE_FROM_ALL ${threaded})
  longstride_flags(test_threads)
  target_compile_definitions(test_threads PRIVATE LONGSTRIDE_SHARED_DATA="")
  target_link_libraries(test_threads PRIVATE fmt::fmt spdlog::spdlog GTest::gtest_main)
endif()
