# What commands print for scripts (--json and --quiet), the pages of `report`, and what a host allows.
longstride_tests(console USES launch LINK ${json} TOGETHER Console HostLimits ReportPages COMMAND longstride
  SLOW ReportPages.ARunIsFollowed*)
find_program(LONGSTRIDE_NODE NAMES node nodejs)
if(LONGSTRIDE_NODE)
  add_test(NAME console.report_script COMMAND ${LONGSTRIDE_NODE} ${CMAKE_CURRENT_LIST_DIR}/report_script.js
    ${PROJECT_SOURCE_DIR}/launch/report/report_script.h)
else()
  add_test(NAME console.report_script COMMAND ${CMAKE_COMMAND} -E echo "skipped: there is no node")
endif()
set_tests_properties(console.report_script PROPERTIES LABELS fast TIMEOUT 60
  SKIP_REGULAR_EXPRESSION "skipped: there is")
find_program(LONGSTRIDE_BASH NAMES bash NO_CACHE)
if(LONGSTRIDE_BASH)
  add_test(NAME console.completion COMMAND ${LONGSTRIDE_BASH} ${CMAKE_CURRENT_LIST_DIR}/completion.sh
    ${PROJECT_SOURCE_DIR}/launch/scripts/completion.bash $<TARGET_FILE:longstride>)
  set_tests_properties(console.completion PROPERTIES LABELS fast TIMEOUT 60)
endif()
