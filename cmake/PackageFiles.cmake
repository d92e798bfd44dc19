# Writes launch/hub/package_files.h's .cpp: the files of the Python package that `export --hf` copies, as text.
if(CMAKE_SCRIPT_MODE_FILE)  # cmake -DFOLDER= -DOUTPUT= -P PackageFiles.cmake
  file(GLOB files RELATIVE "${FOLDER}" "${FOLDER}/*.py" "${FOLDER}/*.json")
  list(REMOVE_ITEM files __init__.py)
  set(made "#include \"launch/hub/package_files.h\"\n\nnamespace longstride {\n\n")
  string(APPEND made "const std::vector<PackageFile>& package_files() {\n  static const std::vector<PackageFile> files = {\n")
  foreach(name ${files})
    file(READ "${FOLDER}/${name}" content)
    string(APPEND made "{\"${name}\", R\"longstride(${content})longstride\"},\n")
  endforeach()
  file(WRITE "${OUTPUT}" "${made}  };\n  return files;\n}\n\n}  // namespace longstride\n")
  return()
endif()

set(folder ${PROJECT_SOURCE_DIR}/launch/python/longstride/model)
set(output ${PROJECT_BINARY_DIR}/generated/package_files.cpp)
file(GLOB files CONFIGURE_DEPENDS ${folder}/*.py ${folder}/*.json)
add_custom_command(OUTPUT ${output}
  COMMAND ${CMAKE_COMMAND} "-DFOLDER=${folder}" "-DOUTPUT=${output}" -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${files} ${CMAKE_CURRENT_LIST_FILE} COMMENT "Copying files of the Python package" VERBATIM)
target_sources(longstride_launch PRIVATE ${output})
set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
