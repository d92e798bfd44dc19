# longstride_attention: the shared library of kernels/c_api, for callers in C and Python. It holds the kernels that it
# calls and exports the functions of its headers alone, with the version of their interface (symbols.map).
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/c_api/*.cpp)
set(symbols ${PROJECT_SOURCE_DIR}/kernels/c_api/symbols.map)
add_library(longstride_attention SHARED ${sources})
longstride_flags(longstride_attention)
target_link_libraries(longstride_attention PRIVATE longstride_kernels longstride_version)
target_link_options(longstride_attention PRIVATE
  -Wl,--version-script=${symbols} -Wl,--as-needed)
if(NOT LONGSTRIDE_SANITIZE)
  target_link_options(longstride_attention PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(longstride_attention PROPERTIES LINK_DEPENDS ${symbols} VERSION ${PROJECT_VERSION} SOVERSION 0
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# The kernels become part of a shared library. As their symbols are hidden, calls remain direct.
foreach(target longstride_kernels longstride_kernels_sm90)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  endif()
endforeach()

# An installed one is longstride::attention (Install.cmake), for which its header is all that callers include.
set_target_properties(longstride_attention PROPERTIES EXPORT_NAME attention INTERFACE_COMPILE_FEATURES ""
  INTERFACE_INCLUDE_DIRECTORIES
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>;$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
longstride_installed(longstride_attention)
set(headers attention.h distance.h scan.h)
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/kernels/c_api/)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/longstride)
