# The sanitizers and the fuzzers as tests of the ordinary build: each builds what it needs in a folder of its own.
if(NOT LONGSTRIDE_SANITIZE AND NOT LONGSTRIDE_FUZZERS)
  foreach(kind address-undefined thread fuzz)
    add_test(NAME sanitizers.${kind}
      COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${kind})
    set_tests_properties(sanitizers.${kind} PROPERTIES LABELS slow TIMEOUT 2700 RUN_SERIAL ON)
  endforeach()
endif()
