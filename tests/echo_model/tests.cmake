# `longstride` with a model that remembers what its rows have read.
add_executable(longstride_echo_model ${PROJECT_SOURCE_DIR}/launch/main.cpp ${CMAKE_CURRENT_LIST_DIR}/echo.cpp)
longstride_flags(longstride_echo_model)
target_link_libraries(longstride_echo_model PRIVATE longstride_launch longstride_version)
longstride_tests(echo_model USES train datasets LINK ${json} spdlog::spdlog TOGETHER EchoCommand COMMAND longstride_echo_model
  ON_DEVICES)
