# The peers' tables, without PyTorch. tests/python has the peers themselves.
add_test(NAME peers.tables COMMAND ${CMAKE_CURRENT_LIST_DIR}/tables_test.sh $<TARGET_FILE:longstride>)
set_tests_properties(peers.tables PROPERTIES LABELS slow TIMEOUT 180)
