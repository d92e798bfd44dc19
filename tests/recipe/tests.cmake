# Random recipes through every command that reads a run.
set(recipes 60)
if(LONGSTRIDE_SANITIZE)
  set(recipes 12)
endif()
add_test(NAME recipe.random
  COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/random_recipes.py $<TARGET_FILE:longstride> 0 ${recipes})
set_tests_properties(recipe.random PROPERTIES LABELS slow TIMEOUT 900 ENVIRONMENT OMP_NUM_THREADS=1)
# Random recipes in the ways of running them that must give the same numbers, on one rank and two.
add_test(NAME recipe.same_runs
  COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/same_runs.py $<TARGET_FILE:longstride> 0 20)
set_tests_properties(recipe.same_runs PROPERTIES LABELS slow TIMEOUT 900 PROCESSORS 2)
