# What `install` puts where, and `uninstall`, which leaves nothing behind.
#
# Folders that installing makes are noted before anything is installed, so that uninstalling can
# tell them from folders that were there, and removes them when they are empty.
set(rota_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rota)
set(rota_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(rota_folders ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_INCLUDEDIR}/rota ${rota_package_dir}
    ${rota_pkgconfig_dir} ${CMAKE_INSTALL_MANDIR}/man1 ${CMAKE_INSTALL_MANDIR}/man3
    ${CMAKE_INSTALL_MANDIR}/man7)
set(rota_noted_folders ${PROJECT_BINARY_DIR}/install_folders.txt)
configure_file(${PROJECT_SOURCE_DIR}/cmake/note_folders.cmake.in
               ${PROJECT_BINARY_DIR}/note_folders.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/note_folders.cmake)

if(NOT TARGET uninstall)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake.in
                 ${PROJECT_BINARY_DIR}/uninstall.cmake @ONLY)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -P ${PROJECT_BINARY_DIR}/uninstall.cmake VERBATIM)
endif()

# A path of the installation as rota.pc names it: ${prefix}/lib, or as it is when absolute.
function(rota_prefixed result path)
  if(NOT IS_ABSOLUTE ${path})
    string(PREPEND path "\${prefix}/")
  endif()
  set(${result} ${path} PARENT_SCOPE)
endfunction()

# Libraries, headers, pkg-config file and CMake package; called where the libraries are made.
macro(rota_install_library)
  foreach(library rota_shared rota_static)
    target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
  install(TARGETS rota_shared EXPORT rota-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS rota_static EXPORT rota-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rota DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h")

  include(CMakePackageConfigHelpers)
  foreach(form shared static)
    install(EXPORT rota-${form} NAMESPACE rota:: DESTINATION ${rota_package_dir})
  endforeach()
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rotaConfig.cmake.in
    ${PROJECT_BINARY_DIR}/rotaConfig.cmake INSTALL_DESTINATION ${rota_package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/rotaConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/rotaConfig.cmake ${PROJECT_BINARY_DIR}/rotaConfigVersion.cmake
          DESTINATION ${rota_package_dir})

  # The prefix may be chosen as late as by `cmake --install --prefix`.
  rota_prefixed(rota_pc_libdir ${CMAKE_INSTALL_LIBDIR})
  rota_prefixed(rota_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(${PROJECT_SOURCE_DIR}/pkgconfig/rota.pc.in ${PROJECT_BINARY_DIR}/rota.pc.in @ONLY)
  install(CODE "
    file(READ \"${PROJECT_BINARY_DIR}/rota.pc.in\" text)
    file(WRITE \"${PROJECT_BINARY_DIR}/rota.pc\" \"prefix=\${CMAKE_INSTALL_PREFIX}\\n\${text}\")")
  install(FILES ${PROJECT_BINARY_DIR}/rota.pc DESTINATION ${rota_pkgconfig_dir})
endmacro()

# The command and its links; the installed command finds the library also where the loader does not
# look by itself.
macro(rota_install_command target)
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  foreach(link ${ARGN})
    install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${link} DESTINATION ${CMAKE_INSTALL_BINDIR})
  endforeach()
  if(NOT CMAKE_INSTALL_FULL_LIBDIR MATCHES "^(/usr)?/lib")
    file(RELATIVE_PATH rota_to_libdir ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "\$ORIGIN/${rota_to_libdir}")
  endif()
endmacro()

# The manual, where there is a Python to write it from the headers and the documents.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/rota/*.h
       ${PROJECT_SOURCE_DIR}/docs/*.md)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man.stamp
    COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/cmake/man_pages.py
            ${PROJECT_VERSION} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man.stamp
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/man_pages.py ${sources} VERBATIM)
  add_custom_target(rota_man ALL DEPENDS ${PROJECT_BINARY_DIR}/man.stamp)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
endif()
