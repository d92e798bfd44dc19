# The C interface from C99, with definitions of attention and scans in C++.
add_library(c_api_naive STATIC ${CMAKE_CURRENT_LIST_DIR}/naive.cpp)
longstride_flags(c_api_naive)
target_link_libraries(c_api_naive PUBLIC OpenMP::OpenMP_CXX)
foreach(name attention distance mistakes scan)
  add_executable(test_c_api_${name} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c)
  target_compile_options(test_c_api_${name} PRIVATE -std=c99 -O2 -Wall -Wextra -Wpedantic -Wshadow -Werror)
  target_link_libraries(test_c_api_${name} PRIVATE c_api_naive longstride_attention Threads::Threads m)
  if(LONGSTRIDE_SANITIZE)
    target_compile_options(test_c_api_${name} PRIVATE -fsanitize=${LONGSTRIDE_SANITIZE} -fno-sanitize-recover=all)
  endif()
  add_dependencies(fast_tests test_c_api_${name})
  add_test(NAME c_api.${name} COMMAND test_c_api_${name})
  set_tests_properties(c_api.${name} PROPERTIES LABELS fast TIMEOUT 300)
endforeach()
add_test(NAME c_api.symbols COMMAND ${CMAKE_CURRENT_LIST_DIR}/symbols.sh $<TARGET_FILE:longstride_attention>
  ${PROJECT_SOURCE_DIR}/kernels/c_api/attention.h ${PROJECT_SOURCE_DIR}/kernels/c_api/distance.h
  ${PROJECT_SOURCE_DIR}/kernels/c_api/scan.h)
set_tests_properties(c_api.symbols PROPERTIES LABELS fast)
# A sanitized library cannot be loaded by a program that is not.
if(NOT LONGSTRIDE_SANITIZE)
  add_test(NAME c_api.guide COMMAND ${CMAKE_CURRENT_LIST_DIR}/guide.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR}/docs/guide/from_pytorch_and_c.md)
  set_tests_properties(c_api.guide PROPERTIES LABELS fast)
  add_test(NAME c_api.alone COMMAND ${CMAKE_CURRENT_LIST_DIR}/alone.sh ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
  set_tests_properties(c_api.alone PROPERTIES LABELS slow)
endif()
