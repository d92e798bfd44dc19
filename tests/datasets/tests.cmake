# Tests of sound need libsndfile for making FLAC and OGG files; where it is absent, so is what they test.
if(LONGSTRIDE_AUDIO)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/audio_test.cpp)
  target_link_libraries(test_datasets PRIVATE PkgConfig::SNDFILE)
else()
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/no_audio_test.cpp)
endif()
