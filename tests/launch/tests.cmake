# Runs every command that writes on disks that are too small; this needs root.
add_test(NAME launch.full_disk
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/full_disk.sh $<TARGET_FILE:longstride> 3)
set_tests_properties(launch.full_disk PROPERTIES LABELS slow TIMEOUT 300 SKIP_RETURN_CODE 77)
if(NOT LONGSTRIDE_SANITIZE)
  set_tests_properties(Reproduced PROPERTIES LABELS slow)  # trains six models
endif()
# The installed files work where they are installed.
add_test(NAME launch.install COMMAND ${CMAKE_CURRENT_LIST_DIR}/install.sh ${PROJECT_BINARY_DIR})
set_tests_properties(launch.install PROPERTIES LABELS slow)
