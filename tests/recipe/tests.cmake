# Random recipes through every command that reads a run.
add_test(NAME recipe.random
  COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/random_recipes.py $<TARGET_FILE:longstride> 0 60)
set_tests_properties(recipe.random PROPERTIES LABELS slow TIMEOUT 900 ENVIRONMENT OMP_NUM_THREADS=1)
