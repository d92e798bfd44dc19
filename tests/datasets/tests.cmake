# Tests of archives and of sound write their files with the libraries that read them; without a library, its replacement
# is tested.
if(LIBARCHIVE_FOUND)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/archive/archive_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/archive/packed_test.cpp)
  target_link_libraries(test_datasets PRIVATE PkgConfig::LIBARCHIVE)
else()
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/archive/no_archive_test.cpp)
endif()
if(LONGSTRIDE_AUDIO)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/audio_test.cpp)
  target_link_libraries(test_datasets PRIVATE PkgConfig::SNDFILE)
else()
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/no_audio_test.cpp)
endif()
