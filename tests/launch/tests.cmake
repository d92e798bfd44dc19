# Most of the suites APART begin by training what their tests read.
longstride_tests(launch USES launch LINK ${json} COMMAND longstride
  APART Reproduced ShowPattern AttentionOfARun Values BeginFrom CheckpointChosen Command Continued Malformed Plan
    RecomputeCommand ExportedRun KeptEvaluations TrainedSchedule ScoresAndSamples Remembering Console HostLimits
    Pretrained ReportPages TrainingSamples RunHistory RunId ForeignRun RunsThatRemember TokensRun
  ALONE TokensOfTextRun.* Continued.CheckpointsThatCannotBeRead* Values.ALimitOnAddressSpace*
  SLOW PlannedMemory.* Reproduce.ATimeLimit* Reproduce.ASignal* Reproduce.ShortRuns* RecomputeCommand.AllRanks*
    BeginFrom.SeveralRanks* ReportPages.ARunIsFollowed* ForeignRun.JsonOfOtherTypes* ForeignRun.HugeFiles*
    Console.WithJson* Console.Quiet* AttentionOfARun.AMemoryFar* HostLimits.RanksOfAHost* SurveyRecipes.Train
    Sweeps.OneThatWasKilled* ProposedRecipe.TrainsOn* ProposedRecipe.TakesAPicture* ProposedRecipe.FitsSound*)
if(NOT LONGSTRIDE_SANITIZE)
  set_tests_properties(Reproduced PROPERTIES LABELS slow)  # trains six models
  # Preloaded into a command, a disk that lacks what some disks lack. A sanitizer must be the first library.
  add_library(poor_disk MODULE ${CMAKE_CURRENT_SOURCE_DIR}/support/poor_disk.cpp)
  target_compile_features(poor_disk PRIVATE cxx_std_20)
  target_include_directories(poor_disk PRIVATE ${PROJECT_SOURCE_DIR})
  add_dependencies(test_launch poor_disk)
  target_compile_definitions(test_launch PRIVATE LONGSTRIDE_POOR_DISK="$<TARGET_FILE:poor_disk>")
endif()

# longstride_script_test(name label interpreter argument ...): skipped where there is no such interpreter.
function(longstride_script_test name label interpreter)
  find_program(found_${interpreter} NAMES ${interpreter} NO_CACHE)
  if(found_${interpreter})
    add_test(NAME ${name} COMMAND ${found_${interpreter}} ${ARGN})
  else()
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: there is no ${interpreter}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 SKIP_REGULAR_EXPRESSION "skipped: there is no")
endfunction()
set(here ${CMAKE_CURRENT_LIST_DIR})
set(longstride $<TARGET_FILE:longstride>)
set(launch ${PROJECT_SOURCE_DIR}/launch)
longstride_script_test(launch.report_script fast node ${here}/report/report_script.js ${launch}/report/report_script.h)
longstride_script_test(launch.completion fast bash ${here}/console/completion.sh ${launch}/scripts/completion.bash
  ${longstride})
longstride_script_test(launch.follow_metrics fast python3 ${here}/report/follow_metrics.py
  ${launch}/scripts/follow_metrics.py ${longstride})
longstride_script_test(launch.packaged_data fast python3 ${here}/packaged_data.py ${launch}/scripts ${longstride})
# Random recipes through every command that reads a run, and in the ways of running them that must give the same numbers,
# on one rank and two.
set(recipes 60)
if(LONGSTRIDE_SANITIZE)
  set(recipes 12)
  add_test(NAME launch.parsers COMMAND test_launch --gtest_brief=1
    --gtest_filter=Recipe*:Malformed.*:Pretrained.Damaged*:ForeignRun.*:RunHistory.*:Prompts.*:LostRun.*)
  set_tests_properties(launch.parsers PROPERTIES LABELS slow TIMEOUT 1800)
endif()
longstride_script_test(launch.random_recipes slow python3 ${here}/recipe/random_recipes.py ${longstride} 0 ${recipes})
set_tests_properties(launch.random_recipes PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
longstride_script_test(launch.same_runs slow python3 ${here}/recipe/same_runs.py ${longstride} 0 20)
set_tests_properties(launch.same_runs PROPERTIES PROCESSORS 2)
# Runs every command that writes on disks that are too small; this needs root.
longstride_script_test(launch.full_disk slow bash ${here}/commands/full_disk.sh ${longstride} 3)
set_tests_properties(launch.full_disk PROPERTIES SKIP_RETURN_CODE 77)
# The installed files work where they are installed.
longstride_script_test(launch.install slow bash ${here}/install.sh ${PROJECT_BINARY_DIR})
