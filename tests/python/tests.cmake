# Tests of the Python package, launch/python. A test is skipped, and says so, without a module that it needs.
set(LONGSTRIDE_PYTHON "" CACHE FILEPATH "Python for the tests of launch/python; empty: a python3 that has PyTorch")
set(tested_python ${LONGSTRIDE_PYTHON})
if(NOT tested_python)
  foreach(candidate python3 /usr/bin/python3)
    execute_process(
      COMMAND ${candidate} -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
      RESULT_VARIABLE lacks_torch OUTPUT_QUIET ERROR_QUIET)
    if(lacks_torch EQUAL 0)
      set(tested_python ${candidate})
      break()
    endif()
  endforeach()
endif()
if(NOT tested_python)
  set(tested_python python3)
endif()

set(python_tests_source ${CMAKE_CURRENT_LIST_DIR})
set(python_environment LONGSTRIDE_COMMAND=$<TARGET_FILE:longstride> PYTHONDONTWRITEBYTECODE=1
  LONGSTRIDE_ATTENTION_LIBRARY=$<TARGET_FILE:longstride_attention>)
function(longstride_python_test name label)
  add_test(NAME python.${name} COMMAND ${tested_python} ${python_tests_source}/${name}_test.py)
  set_tests_properties(python.${name} PROPERTIES LABELS ${label} TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${python_environment}")
endfunction()
longstride_python_test(settings fast)
longstride_python_test(package fast)
longstride_python_test(model fast)
longstride_python_test(runs fast)
longstride_python_test(encoder fast)
longstride_python_test(exchange slow)  # imports transformers
longstride_python_test(harness slow)  # imports transformers and lm_eval
longstride_python_test(pieces slow)  # imports transformers and lm_eval
longstride_python_test(wheel slow)
longstride_python_test(families fast)
longstride_python_test(memory fast)
longstride_python_test(guide slow)  # imports transformers
longstride_python_test(peer fast)
longstride_python_test(decoder_peers slow)
longstride_python_test(kernels fast)
longstride_python_test(kmer_baseline fast)
foreach(package transformers performer_pytorch)
  add_test(NAME python.scan_peers_${package}
    COMMAND ${tested_python} ${python_tests_source}/scan_peers_test.py ${package})
  set_tests_properties(python.scan_peers_${package} PROPERTIES LABELS slow TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${python_environment}")
endforeach()
longstride_python_test(compiled slow)
longstride_python_test(hub slow)  # imports transformers
longstride_python_test(table_text fast)
set_tests_properties(python.decoder_peers PROPERTIES TIMEOUT 600)
