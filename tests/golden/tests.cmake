# The golden files are JSON, and some are of training.
if(TARGET test_models)
  target_link_libraries(test_models PRIVATE longstride_optim nlohmann_json::nlohmann_json)
endif()
