# Tests, without a GPU, the scripts that run on machines with GPUs.
foreach(script queue random_shapes same_steps several_gpus)
  add_test(NAME gpu_scripts.${script} COMMAND ${CMAKE_CURRENT_LIST_DIR}/scripts/${script}_test.sh)
  set_tests_properties(gpu_scripts.${script} PROPERTIES LABELS fast TIMEOUT 60)
endforeach()
add_test(NAME gpu_scripts.usage COMMAND ${CMAKE_CURRENT_LIST_DIR}/usage.sh)
set_tests_properties(gpu_scripts.usage PROPERTIES LABELS fast TIMEOUT 60)
set_tests_properties(gpu_scripts.random_shapes gpu_scripts.same_steps PROPERTIES LABELS slow)
