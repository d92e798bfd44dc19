# find_package(longstride) gives longstride::attention, the library, and longstride::longstride, the command, unless
# only the library was built.
include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/longstride)
install(EXPORT longstride NAMESPACE longstride:: FILE longstrideConfig.cmake DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/longstrideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/longstrideConfigVersion.cmake DESTINATION ${config_folder})
