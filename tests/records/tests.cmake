# What a run records about itself, and the script that logs it to other services, with stand-ins for these.
longstride_tests(records USES launch LINK ${json} TOGETHER TrainingSamples RunHistory RunId ForeignRun COMMAND longstride
  SLOW ForeignRun.JsonOfOtherTypes* ForeignRun.HugeFiles*)
# Preloaded into a command, a disk that lacks what some disks lack. A sanitizer must be the first library.
if(NOT LONGSTRIDE_SANITIZE)
  add_library(poor_disk MODULE ${CMAKE_CURRENT_SOURCE_DIR}/support/poor_disk.cpp)
  target_compile_features(poor_disk PRIVATE cxx_std_20)
  target_include_directories(poor_disk PRIVATE ${PROJECT_SOURCE_DIR})
  add_dependencies(test_records poor_disk)
  target_compile_definitions(test_records PRIVATE LONGSTRIDE_POOR_DISK="$<TARGET_FILE:poor_disk>")
endif()
find_program(follow_metrics_python python3 NO_CACHE)
if(follow_metrics_python)
  add_test(NAME records.follow_metrics COMMAND ${follow_metrics_python} ${CMAKE_CURRENT_LIST_DIR}/follow_metrics.py
    ${PROJECT_SOURCE_DIR}/launch/scripts/follow_metrics.py $<TARGET_FILE:longstride>)
else()
  add_test(NAME records.follow_metrics COMMAND ${CMAKE_COMMAND} -E echo "skipped: there is no python3")
endif()
set_tests_properties(records.follow_metrics PROPERTIES LABELS fast TIMEOUT 120
  SKIP_REGULAR_EXPRESSION "skipped: there is")
