# Tests of archives, pictures and sound write their files with the libraries that read them; without a library, its
# replacement is tested.
set(left_out)
set(libraries)
macro(longstride_format tests replacement found library)
  if(${found})
    list(APPEND left_out ${replacement})
    list(APPEND libraries ${library})
  else()
    list(APPEND left_out ${tests})
  endif()
endmacro()
longstride_format(/archive/ no_archive_ LIBARCHIVE_FOUND PkgConfig::LIBARCHIVE)
longstride_format(/sound/ no_audio_ LONGSTRIDE_AUDIO PkgConfig::SNDFILE)
longstride_format(/jpeg_test no_jpeg_ JPEG_FOUND PkgConfig::JPEG)
longstride_format(/webp_test no_webp_ WEBP_FOUND PkgConfig::WEBP)
if(NOT (LIBARCHIVE_FOUND AND JPEG_FOUND AND WEBP_FOUND))
  list(APPEND left_out /pictures/prepare_test)
endif()
string(JOIN "|" left_out ${left_out})
longstride_tests(datasets USES datasets LINK longstride::hdf5 PNG::PNG ${libraries} COMMAND longstride
  LEAVE_OUT "${left_out}" SLOW DamagedDataset.SurvivesEveryWrongByte*
  ALONE TokensOfText.* TokensWithoutSentencePiece.* PrepareCommand.SaysWhatToDoWithoutMemory PrepareAudio.TakesRealMusic SoundFormats.*Mp3*
    Archives.GiveRealPictures Png.AllocatesNothing* Resize.ScalesOnlyTheRows* Jpeg.RefusesHugeSizes*)
