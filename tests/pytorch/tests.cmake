# longstride.attention in PyTorch, by the Python that tests/python has chosen. Where there is no PyTorch that is new
# enough, the tests are skipped and say so. They compute on a GPU if the build has CUDA kernels and there is one:
# tests/gpu/scripts/pytorch.sh runs them there.
#
# A sanitized library cannot be loaded by a program that is not.
if(LONGSTRIDE_SANITIZE)
  return()
endif()
foreach(name attention bounds compile distance guide labels peer scan scan_peers transformers transforms)
  add_test(NAME pytorch.${name} COMMAND ${tested_python} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
endforeach()
add_test(NAME pytorch.pip COMMAND ${CMAKE_CURRENT_LIST_DIR}/pip.sh ${tested_python} ${PROJECT_SOURCE_DIR})
add_test(NAME pytorch.pip_off COMMAND ${CMAKE_CURRENT_LIST_DIR}/pip_off.sh ${tested_python} ${PROJECT_SOURCE_DIR})
set(environment PYTHONPATH=${PROJECT_SOURCE_DIR}/launch/python PYTHONDONTWRITEBYTECODE=1
  LONGSTRIDE_ATTENTION_LIBRARY=$<TARGET_FILE:longstride_attention>)
set_tests_properties(pytorch.attention pytorch.bounds pytorch.compile pytorch.distance pytorch.guide pytorch.labels pytorch.peer pytorch.scan pytorch.scan_peers
  pytorch.transformers pytorch.transforms pytorch.pip
  pytorch.pip_off PROPERTIES TIMEOUT 900 LABELS slow SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
set_tests_properties(pytorch.guide pytorch.transforms PROPERTIES LABELS fast)
