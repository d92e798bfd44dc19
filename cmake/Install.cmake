# Files that `cmake --install` installs, next to the library of attention (AttentionLibrary.cmake), and packages of it:
# `cpack -G DEB` and `cpack -G TGZ`, in a build folder of the preset `package`. tests/packages/try.sh tries both on a
# bare system.
longstride_installed(longstride)
set_target_properties(longstride PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "")  # not the source folder
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/longstride)
install(PROGRAMS launch/scripts/slurm.sbatch launch/scripts/follow_metrics.py launch/scripts/articles.py
  launch/scripts/gene_starts.py launch/scripts/human_dna.py launch/scripts/kernel_sources.py
  launch/scripts/kmer_baseline.py launch/scripts/proteins.py launch/scripts/table_text.py launch/scripts/utf8.sh
  DESTINATION ${CMAKE_INSTALL_DATADIR}/longstride/scripts)
install(FILES launch/scripts/hostfile.example launch/scripts/packaged_data.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/longstride/scripts)
install(FILES launch/scripts/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME longstride)
# The manual page is what --help of the program says, so the program has to run here.
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/launch/scripts/man_page.sh $<TARGET_FILE:longstride>
    OUTPUT_FILE ${PROJECT_BINARY_DIR}/longstride.1 COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${PROJECT_BINARY_DIR}/longstride.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES README.md CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

include(PackageConfig)

# Packages differ between distributions in what they depend on, so a package's name says for which it was built.
cmake_host_system_information(RESULT distribution QUERY DISTRIB_INFO)
set(CPACK_PACKAGE_NAME longstride)
if(LONGSTRIDE_CUDA)
  set(CPACK_PACKAGE_NAME longstride-cuda${CUDAToolkit_VERSION_MAJOR})
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains autoregressive models on very long sequences")
set(CPACK_PACKAGE_DESCRIPTION "Longstride turns raw text, pictures and sound into datasets, trains Sparse
Transformers in one process or, by mpirun, in many, evaluates them and samples from them.")
set(CPACK_PACKAGE_VENDOR Longstride)
set(CPACK_PACKAGE_CONTACT "The Longstride authors <longstride@localhost>")
set(CPACK_PACKAGE_FILE_NAME
  ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-${distribution_ID}${distribution_VERSION_ID}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${distribution_ID}${distribution_VERSION_ID})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion, python3")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
if(LONGSTRIDE_CUDA)
  # The GPU's libraries by the names of NVIDIA's own packages. A toolkit that was installed without packages has the
  # libraries, but nothing that tells where they come from, so they are not left to dpkg-shlibdeps.
  set(cuda_release ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "cuda-cudart-${cuda_release}, libcublas-${cuda_release}")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
  if(LONGSTRIDE_NCCL)
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libnccl2")
    cmake_path(GET NCCL_LIBRARY PARENT_PATH nccl_folder)
    list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${nccl_folder})
  endif()
  set(CPACK_DEBIAN_PACKAGE_PROVIDES longstride)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS longstride)
  set(CPACK_DEBIAN_PACKAGE_REPLACES longstride)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/readable_folders.cmake)
if(LONGSTRIDE_NATIVE)
  list(PREPEND CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/refuse_native.cmake)
endif()
include(CPack)
