# cmake -DCOMMAND="a;b;c" -DEXIT_CODE=n -DOUTPUT=regex -P expect_failure.cmake: the command fails this way within 10 s.
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 10)
if(NOT code STREQUAL EXIT_CODE OR NOT out MATCHES "${OUTPUT}")
  message(FATAL_ERROR "ended with ${code}, not ${EXIT_CODE}, or did not say '${OUTPUT}':\n${out}")
endif()
