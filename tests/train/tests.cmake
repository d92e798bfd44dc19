# The checkpoint tests listen to spdlog: the same library as in the code under test.
target_link_libraries(test_train PRIVATE spdlog::spdlog)
