# `longstride` with one more model: the same main with one more line in the registry.
longstride_command(longstride_second_model ${CMAKE_CURRENT_LIST_DIR}/bigram.cpp ${CMAKE_CURRENT_LIST_DIR}/schema.cpp)
longstride_tests(second_model USES models datasets LINK ${json}
  COMMAND longstride_second_model)
