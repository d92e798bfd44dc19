# Tests, without a GPU, the scripts that run on machines with GPUs.
foreach(script queue random_shapes same_steps several_gpus)
  add_test(NAME gpu_scripts.${script} COMMAND ${PROJECT_SOURCE_DIR}/launch/scripts/gpu/${script}_test.sh)
  set_tests_properties(gpu_scripts.${script} PROPERTIES LABELS fast TIMEOUT 60)
endforeach()
add_test(NAME gpu_scripts.usage COMMAND ${CMAKE_CURRENT_LIST_DIR}/usage.sh)
set_tests_properties(gpu_scripts.usage PROPERTIES LABELS fast TIMEOUT 60)
set_tests_properties(gpu_scripts.random_shapes gpu_scripts.same_steps PROPERTIES LABELS slow)
add_test(NAME peers.tables COMMAND ${PROJECT_SOURCE_DIR}/launch/scripts/peers/tables_test.sh)
set_tests_properties(peers.tables PROPERTIES LABELS slow TIMEOUT 60)
add_test(NAME peers.train_all
  COMMAND ${PROJECT_SOURCE_DIR}/launch/scripts/peers/decoders/train_all_test.sh $<TARGET_FILE:longstride>)
set_tests_properties(peers.train_all PROPERTIES LABELS slow TIMEOUT 120)
