# Tests that run on several ranks of this machine. Every rank runs every test; the tests on one rank show that MPI's
# world may have size 1.
set(ranks_source ${CMAKE_CURRENT_LIST_DIR})
add_executable(test_distributed ${ranks_source}/main.cpp ${ranks_source}/communicator_test.cpp
  ${ranks_source}/checkpoint_test.cpp ${ranks_source}/training_test.cpp ${ranks_source}/streams_test.cpp)
add_executable(test_distributed_failure ${ranks_source}/failure.cpp)
foreach(target test_distributed test_distributed_failure)
  longstride_flags(${target})
  target_link_libraries(${target} PRIVATE longstride_train)
  add_dependencies(fast_tests ${target})
endforeach()
target_link_libraries(test_distributed PRIVATE longstride_datasets GTest::gtest)

# More ranks than cores, as root in a container, and no core bound: this is a test, not a benchmark.
set(ranks_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
  OMP_NUM_THREADS=1)
if(LONGSTRIDE_SANITIZE)
  list(APPEND ranks_environment LONGSTRIDE_TEST_CONTEXT=128)  # a quarter of the positions take a quarter of the time
endif()
function(longstride_on_ranks test)
  set_tests_properties(${test} PROPERTIES LABELS fast TIMEOUT 400 PROCESSORS 2 ENVIRONMENT "${ranks_environment}")
endfunction()

foreach(ranks 1 2 3 4)
  add_test(NAME distributed.ranks_${ranks}
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:test_distributed> --gtest_brief=1)
  longstride_on_ranks(distributed.ranks_${ranks})
endforeach()
# Only two ranks are fast; the sanitizers run those.
set_tests_properties(distributed.ranks_1 distributed.ranks_3 distributed.ranks_4 PROPERTIES LABELS slow)

# The same training on GPUs, one per rank. NVLink multicast stays off, since it is a resource of the whole host.
if(LONGSTRIDE_NCCL)
  foreach(ranks 1 2 4)
    add_test(NAME distributed.gpus_${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:test_distributed>
        --gtest_brief=1 --gtest_filter=TrainingOnRanks.*:StreamsOnRanks.*)
    longstride_on_ranks(distributed.gpus_${ranks})
    set_tests_properties(distributed.gpus_${ranks} PROPERTIES LABELS "gpu;multi_gpu" TIMEOUT 300
      SKIP_REGULAR_EXPRESSION "fewer GPUs than ranks"
      ENVIRONMENT "${ranks_environment};LONGSTRIDE_TEST_DEVICE=gpu;NCCL_NVLS_ENABLE=0")
  endforeach()
endif()

# One rank fails while the others wait for it: the whole job ends soon and says why.
function(longstride_failure_test way code output)
  add_test(NAME distributed.failure_by_${way} COMMAND ${CMAKE_COMMAND}
    "-DCOMMAND=${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG};3;$<TARGET_FILE:test_distributed_failure>;${way}"
    -DEXIT_CODE=${code} "-DOUTPUT=${output}" -P ${ranks_source}/expect_failure.cmake)
  longstride_on_ranks(distributed.failure_by_${way})
  set_tests_properties(distributed.failure_by_${way} PROPERTIES PROCESSORS 1)  # they wait
endfunction()
longstride_failure_test(throw 2 "rank 1 .[^)]+.: the reason")
longstride_failure_test(unwind 1 "")
longstride_failure_test(kill 137 "signal 9")
if(NOT LONGSTRIDE_SANITIZE)  # mpirun takes a second to end the others, unless the failed rank has asked it to
  set_tests_properties(distributed.failure_by_unwind distributed.failure_by_kill PROPERTIES LABELS slow)
endif()

# Training as a user runs it, on real text: losses, bits, kills and signals.
foreach(scenario ranks divided kill kill_ranks sigterm threads unlike chosen elastic elastic_sharded)
  add_test(NAME distributed.training_${scenario}
    COMMAND ${ranks_source}/training.sh $<TARGET_FILE:longstride> ${scenario})
  longstride_on_ranks(distributed.training_${scenario})
  set_tests_properties(distributed.training_${scenario} PROPERTIES LABELS slow)
endforeach()
set_tests_properties(distributed.training_sigterm PROPERTIES PROCESSORS 1)  # one rank

# Ranks time the same number of steps, although each may find another time for the first: else they would hang.
add_test(NAME distributed.bench_step
  COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 $<TARGET_FILE:longstride>
    bench step ${PROJECT_SOURCE_DIR}/recipes/quickstart/text.yaml --device cpu --steps 10000 --seconds 0.2
    --set data.context=64 --set model.layers=1 --set model.width=16 --set model.heads=2)
longstride_on_ranks(distributed.bench_step)
set_tests_properties(distributed.bench_step PROPERTIES PASS_REGULAR_EXPRESSION "ranks +2" TIMEOUT 120)

# Ranks that mpirun binds to one core each do not share cores.
add_test(NAME distributed.doctor_of_bound_ranks
  COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 --bind-to core $<TARGET_FILE:longstride> doctor --megabytes 8)
longstride_on_ranks(distributed.doctor_of_bound_ranks)
set_tests_properties(distributed.doctor_of_bound_ranks PROPERTIES
  PASS_REGULAR_EXPRESSION "processors +[^ ]+ +2 for 2 rank" FAIL_REGULAR_EXPRESSION "threads share cores")

# Ranks that die, stop or are asked to stop; slow, because every fault has to be detected.
foreach(scenario kill stop signal signal_saving signal_evaluating full_disk)
  add_test(NAME distributed.faults_${scenario}
    COMMAND ${ranks_source}/faults.sh $<TARGET_FILE:longstride> ${scenario} 3)
  longstride_on_ranks(distributed.faults_${scenario})
  set_tests_properties(distributed.faults_${scenario} PROPERTIES LABELS slow)
endforeach()
foreach(scenario_library start:troubled_start slow_disk:slow_disk)
  string(REPLACE ":" ";" scenario_library ${scenario_library})
  list(GET scenario_library 0 scenario)
  list(GET scenario_library 1 library)
  add_library(${library} MODULE ${ranks_source}/${library}.cpp)
  target_compile_features(${library} PRIVATE cxx_std_20)
  target_link_libraries(${library} PRIVATE ${CMAKE_DL_LIBS})
  add_test(NAME distributed.faults_${scenario}
    COMMAND ${ranks_source}/faults.sh $<TARGET_FILE:longstride> ${scenario} $<TARGET_FILE:${library}>)
  longstride_on_ranks(distributed.faults_${scenario})
  set_tests_properties(distributed.faults_${scenario} PROPERTIES LABELS slow)
endforeach()
# Some of the kills that kills.sh can do.
add_test(NAME distributed.kills COMMAND ${ranks_source}/kills.sh $<TARGET_FILE:longstride> --kills 12)
add_test(NAME distributed.kills_of_memories COMMAND ${ranks_source}/kills.sh $<TARGET_FILE:longstride> --kills 6
  --ranks "1 2" --models "transformer-xl compressive adaptive")
foreach(test distributed.kills distributed.kills_of_memories)
  longstride_on_ranks(${test})
  set_tests_properties(${test} PROPERTIES LABELS slow)
endforeach()

# Several hosts, imitated by network namespaces: these need root and iproute2.
foreach(scenario same cut)
  add_test(NAME distributed.hosts_${scenario} COMMAND ${ranks_source}/hosts.sh $<TARGET_FILE:longstride> ${scenario})
  longstride_on_ranks(distributed.hosts_${scenario})
  set_tests_properties(distributed.hosts_${scenario} PROPERTIES LABELS slow SKIP_RETURN_CODE 77)
endforeach()
