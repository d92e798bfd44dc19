# Writes launch/run/build_info.h's .cpp. The commit is looked up at every build, but the file is replaced only if its
# content changes, so a build without a new commit compiles nothing.
if(CMAKE_SCRIPT_MODE_FILE)  # cmake -DSOURCE= -DOUTPUT= -DTYPE= -DSANITIZE= -DNATIVE= -P BuildInfo.cmake
  # An unpacked archive may lie within another repository, whose commit says nothing.
  execute_process(COMMAND git rev-parse --show-prefix WORKING_DIRECTORY "${SOURCE}"
    RESULT_VARIABLE failed OUTPUT_VARIABLE prefix ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(commit "")
  if(failed STREQUAL "0" AND prefix STREQUAL "")
    execute_process(COMMAND git describe --always --dirty "--exclude=*" --abbrev=40 WORKING_DIRECTORY "${SOURCE}"
      OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
    set(commit "unknown")
  endif()
  set(type "${TYPE}")
  set(sanitizers "${SANITIZE}")
  set(native false)
  if(NATIVE)
    set(native true)
  endif()
  configure_file("${CMAKE_CURRENT_LIST_DIR}/build_info.cpp.in" "${OUTPUT}" @ONLY)
  return()
endif()

set(output ${PROJECT_BINARY_DIR}/generated/build_info.cpp)
add_custom_target(longstride_build_info
  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${output}" "-DTYPE=${CMAKE_BUILD_TYPE}"
    "-DSANITIZE=${LONGSTRIDE_SANITIZE}" "-DNATIVE=${LONGSTRIDE_NATIVE}" -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${output} COMMENT "Looking up the commit" VERBATIM)
target_sources(longstride_launch PRIVATE ${output})
add_dependencies(longstride_launch longstride_build_info)
