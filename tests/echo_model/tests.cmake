# `longstride` with a model that remembers what its rows have read.
longstride_command(longstride_echo_model ${CMAKE_CURRENT_LIST_DIR}/echo.cpp)
longstride_tests(echo_model USES train datasets LINK ${json} spdlog::spdlog COMMAND longstride_echo_model
  ON_DEVICES APART EchoCommand Echo/ModelProperties/0 RowsThatRemember)
if(NOT LONGSTRIDE_SANITIZE)
  set_tests_properties(EchoCommand PROPERTIES LABELS slow)  # the model alone is fast
endif()
