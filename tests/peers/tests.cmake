# Tests, without PyTorch, the scripts that compare with it.
add_test(NAME peers.tables COMMAND ${CMAKE_CURRENT_LIST_DIR}/tables_test.sh)
set_tests_properties(peers.tables PROPERTIES LABELS slow TIMEOUT 60)
add_test(NAME peers.train_all
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/decoders/train_all_test.sh $<TARGET_FILE:longstride>)
set_tests_properties(peers.train_all PROPERTIES LABELS slow TIMEOUT 120)
