# The golden files are JSON.
if(TARGET test_models)
  target_link_libraries(test_models PRIVATE nlohmann_json::nlohmann_json)
endif()
