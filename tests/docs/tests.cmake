# docs/develop/adding_a_pattern.md as it is written: its changes are made in a copy of the files that they touch, and what
# depends on these is compiled and tested. The test builds it, `all` does not.
set(page ${PROJECT_SOURCE_DIR}/docs/develop/adding_a_pattern.md)
set(changed_folder ${CMAKE_CURRENT_BINARY_DIR}/adding_a_pattern)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(STRINGS ${page} patches REGEX "^<!-- patch ")
set(changed_files)
foreach(patch ${patches})
  string(REGEX REPLACE "^<!-- patch ([^ ]+) .*" "\\1" file "${patch}")
  list(APPEND changed_files ${file})
endforeach()
list(REMOVE_DUPLICATES changed_files)
list(TRANSFORM changed_files PREPEND ${changed_folder}/ OUTPUT_VARIABLE changed_paths)
list(TRANSFORM changed_files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE unchanged_paths)
add_custom_command(OUTPUT ${changed_paths}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${changed_folder}
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/apply_page.sh ${page} ${PROJECT_SOURCE_DIR} ${changed_folder}
  DEPENDS ${page} ${CMAKE_CURRENT_LIST_DIR}/apply_page.sh ${unchanged_paths} VERBATIM)

# Whatever includes a changed header: attention on the CPU with its tests, and the recipe parser with its messages.
file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/kernels/attention/pattern/*.cpp
  ${PROJECT_SOURCE_DIR}/kernels/attention/cpu/*.cpp ${PROJECT_SOURCE_DIR}/kernels/attention/decode/*.cpp
  ${PROJECT_SOURCE_DIR}/tests/kernels/attention_*_test.cpp ${PROJECT_SOURCE_DIR}/launch/recipe/*.cpp)
list(FILTER sources EXCLUDE REGEX "_(cuda|bench)\\.cpp$")
list(APPEND sources tests/kernels/attention_test.cpp launch/recipe/settings_tree.cpp tests/launch/recipe_errors_test.cpp
  tests/docs/dilated_test.cpp)
set(paths)
foreach(source ${sources})
  if(source IN_LIST changed_files)
    list(APPEND paths ${changed_folder}/${source})
  else()
    list(APPEND paths ${PROJECT_SOURCE_DIR}/${source})
  endif()
endforeach()
add_executable(test_adding_a_pattern EXCLUDE_FROM_ALL ${paths})
longstride_flags(test_adding_a_pattern)
target_include_directories(test_adding_a_pattern BEFORE PRIVATE ${changed_folder})
target_link_libraries(test_adding_a_pattern PRIVATE longstride_core yaml-cpp GTest::gtest GTest::gtest_main)

add_test(NAME adding_a_pattern.build
  COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target test_adding_a_pattern)
add_test(NAME adding_a_pattern COMMAND test_adding_a_pattern --gtest_brief=1)
set_tests_properties(adding_a_pattern.build adding_a_pattern PROPERTIES LABELS slow TIMEOUT 600)
set_tests_properties(adding_a_pattern.build PROPERTIES FIXTURES_SETUP adding_a_pattern)
set_tests_properties(adding_a_pattern PROPERTIES FIXTURES_REQUIRED adding_a_pattern)
