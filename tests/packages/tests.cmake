add_test(NAME packages.scripts COMMAND ${CMAKE_CURRENT_LIST_DIR}/scripts.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(packages.scripts PROPERTIES LABELS fast)
