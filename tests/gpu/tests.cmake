# The queue that the GPU scripts stand on needs no GPU itself.
add_test(NAME gpu_scripts.queue COMMAND ${CMAKE_CURRENT_LIST_DIR}/queue_test.sh)
set_tests_properties(gpu_scripts.queue PROPERTIES LABELS fast TIMEOUT 60)
