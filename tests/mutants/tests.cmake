# The text that a mutant replaces occurs exactly once.
add_test(NAME mutants.occur COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/mutants.py --list)
set_tests_properties(mutants.occur PROPERTIES LABELS fast)
