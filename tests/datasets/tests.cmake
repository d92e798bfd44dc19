# Tests of archives, of pictures and of sound write their files with the libraries that read them; without a library, its replacement
# is tested.
if(LIBARCHIVE_FOUND)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/archive/archive_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/archive/members_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/archive/packed_test.cpp ${CMAKE_CURRENT_LIST_DIR}/archive/published_test.cpp)
  target_link_libraries(test_datasets PRIVATE PkgConfig::LIBARCHIVE)
else()
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/archive/no_archive_test.cpp)
endif()
target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/inputs/copies_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/inputs/no_text_test.cpp)
target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pictures/decoding_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/pictures/fit_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/pictures/info_test.cpp)
foreach(format jpeg webp)
  string(TOUPPER ${format} library)
  if(${library}_FOUND)
    target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pictures/${format}_test.cpp)
    target_link_libraries(test_datasets PRIVATE PkgConfig::${library})
  else()
    target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pictures/no_${format}_test.cpp)
  endif()
endforeach()
if(LIBARCHIVE_FOUND AND JPEG_FOUND AND WEBP_FOUND)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pictures/prepare_test.cpp)
endif()
if(LONGSTRIDE_AUDIO)
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/audio_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/sound/cut_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/sound/damage_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/sound/formats_test.cpp)
  target_link_libraries(test_datasets PRIVATE PkgConfig::SNDFILE)
else()
  target_sources(test_datasets PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sound/no_audio_test.cpp)
endif()
