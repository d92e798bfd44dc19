# `longstride` with one more model: the same main with one more line in the registry.
add_executable(longstride_second_model ${PROJECT_SOURCE_DIR}/launch/main.cpp
  ${CMAKE_CURRENT_LIST_DIR}/bigram.cpp ${CMAKE_CURRENT_LIST_DIR}/schema.cpp)
longstride_flags(longstride_second_model)
target_link_libraries(longstride_second_model PRIVATE longstride_launch longstride_version)
longstride_tests(second_model USES models LINK ${json} TOGETHER SecondModel COMMAND longstride_second_model)
