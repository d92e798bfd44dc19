# `longstride` with one more objective, and a model that answers it.
longstride_command(longstride_objectives ${CMAKE_CURRENT_LIST_DIR}/halves.cpp)
longstride_tests(objectives USES train datasets LINK ${json} longstride::hdf5
  COMMAND longstride_objectives APART LabelledRuns
  SLOW LabelledRuns.HaveTheSameLosses* LabelledRuns.LearnFromTypes*)
