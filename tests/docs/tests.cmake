# Tests the pages of docs/develop: their changes are made in a copy of the files that they touch, and what depends on
# these is compiled and tested. The tests build it, but `all` does not.
#
# longstride_page_test(name sources...): sources are files of the project, which NAME.md may change.
function(longstride_page_test name)
  set(page ${PROJECT_SOURCE_DIR}/docs/develop/${name}.md)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
  file(STRINGS ${page} changes REGEX "^<!-- (patch|file) ")
  set(changed)
  set(originals)
  foreach(change ${changes})
    string(REGEX REPLACE "^<!-- [a-z]+ ([^ ]+) .*" "\\1" file "${change}")
    list(APPEND changed ${file})
    if(change MATCHES "^<!-- patch ")
      list(APPEND originals ${PROJECT_SOURCE_DIR}/${file})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES changed)
  list(TRANSFORM changed PREPEND ${folder}/ OUTPUT_VARIABLE changed_paths)
  add_custom_command(OUTPUT ${changed_paths}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}
    COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/apply_page.sh ${page} ${PROJECT_SOURCE_DIR} ${folder}
    DEPENDS ${page} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/apply_page.sh ${originals} VERBATIM)
  set(paths)
  foreach(source ${ARGN})
    if(source IN_LIST changed)
      list(APPEND paths ${folder}/${source})
    else()
      list(APPEND paths ${PROJECT_SOURCE_DIR}/${source})
    endif()
  endforeach()
  add_executable(test_${name} EXCLUDE_FROM_ALL ${paths})
  longstride_flags(test_${name})
  target_include_directories(test_${name} BEFORE PRIVATE ${folder})
  target_link_libraries(test_${name} PRIVATE longstride_ops GTest::gtest GTest::gtest_main)
  add_test(NAME ${name}.build COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target test_${name})
  add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1)
  set_tests_properties(${name}.build ${name} PROPERTIES LABELS slow TIMEOUT 600)
  set_tests_properties(${name}.build PROPERTIES FIXTURES_SETUP ${name})
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED ${name})
endfunction()

# What the page changes or tests: attention on the CPU with its tests, and the recipe parser with its messages. The rest
# comes from the libraries, which do not have the changes. All of framework/models is here, since LONGSTRIDE_UNITY joins
# its files: the linker would take those of the library together with the one that is missing.
file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/kernels/attention/pattern/*.cpp
  ${PROJECT_SOURCE_DIR}/kernels/attention/cpu/*.cpp ${PROJECT_SOURCE_DIR}/kernels/attention/decode/*.cpp
  ${PROJECT_SOURCE_DIR}/tests/kernels/attention_*_test.cpp ${PROJECT_SOURCE_DIR}/launch/recipe/*.cpp
  ${PROJECT_SOURCE_DIR}/framework/models/*.cpp ${PROJECT_SOURCE_DIR}/framework/models/decoder/*.cpp)
list(FILTER sources EXCLUDE REGEX "_(cuda|bench)\\.cpp$")
if(NOT LONGSTRIDE_CUDA)
  list(APPEND sources framework/models/decoder/generate/no_cuda.cpp)
endif()
list(APPEND sources tests/kernels/attention_test.cpp framework/train/stages.cpp tests/recipe/recipe_errors_test.cpp
  tests/docs/dilated_test.cpp)
longstride_page_test(adding_a_pattern ${sources})
target_link_libraries(test_adding_a_pattern PRIVATE longstride_models yaml-cpp)

set(sources kernels/gate/gate_cpu.cpp tests/ops/gate_test.cpp)
if(LONGSTRIDE_CUDA)
  list(APPEND sources kernels/gate/gate_cuda.cu)
endif()
longstride_page_test(adding_an_op ${sources})
