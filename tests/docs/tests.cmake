# Tests the pages of docs/develop: their changes are made in a copy of the files that they touch, and what depends on
# these is compiled and tested. The tests build it, but `all` does not.
#
# longstride_page_test(name SOURCES file ... [LINK library ...]): files of the project, which NAME.md may change, and
# what they need besides longstride_ops.
function(longstride_page_test name)
  cmake_parse_arguments(PAGE "" "" "SOURCES;LINK" ${ARGN})
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
  foreach(source ${PAGE_SOURCES})
    if(source IN_LIST changed)
      list(APPEND paths ${folder}/${source})
    else()
      list(APPEND paths ${PROJECT_SOURCE_DIR}/${source})
    endif()
  endforeach()
  add_executable(test_${name} EXCLUDE_FROM_ALL ${paths})
  longstride_flags(test_${name})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(test_${name} PRIVATE -O1)  # compiles faster than -O3
  endif()
  target_include_directories(test_${name} BEFORE PRIVATE ${folder})
  target_link_libraries(test_${name} PRIVATE ${PAGE_LINK} longstride_ops GTest::gtest GTest::gtest_main)
  add_test(NAME ${name}.build COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target test_${name})
  add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1)
  set_tests_properties(${name}.build ${name} PROPERTIES LABELS slow TIMEOUT 600)
  set_tests_properties(${name}.build PROPERTIES FIXTURES_SETUP ${name})
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED ${name})
endfunction()

# The pages of patterns and mixers change and test whole rooms: LONGSTRIDE_UNITY joins their files, so the linker would
# take those of the library together with the one that is missing. The rest comes from the libraries, which do not have
# the changes.
function(longstride_room_sources out)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE folders)
  list(TRANSFORM folders APPEND /*.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${folders})
  list(FILTER sources EXCLUDE REGEX "_(cuda|bench)\\.cpp$")
  if(LONGSTRIDE_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

longstride_room_sources(recipes framework/mixers launch/recipe datasets/objectives)
list(APPEND recipes framework/train/stages.cpp tests/launch/recipe/recipe_errors_test.cpp)

# Attention on the CPU with its tests, and its keys.
longstride_room_sources(sources kernels/attention/pattern kernels/attention/cpu kernels/attention/decode)
file(GLOB tests CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/kernels/attention_*_test.cpp)
longstride_page_test(adding_a_pattern LINK longstride_models yaml-cpp
  SOURCES ${sources} kernels/attention/choice.cpp ${recipes} ${tests} tests/kernels/attention_test.cpp tests/docs/previous_block_test.cpp)

set(folder framework/mixers/average)
longstride_page_test(adding_a_mixer LINK longstride_models yaml-cpp
  SOURCES ${recipes} ${folder}/facts.cpp ${folder}/mixer.cpp ${folder}/schema.cpp tests/mixers/average_test.cpp
    tests/models/average_decoder_test.cpp tests/docs/average_test.cpp)

set(sources kernels/gate/gate_cpu.cpp tests/ops/gate_test.cpp)
if(LONGSTRIDE_CUDA)
  list(APPEND sources kernels/gate/gate_cuda.cu)
endif()
longstride_page_test(adding_an_op SOURCES ${sources})
