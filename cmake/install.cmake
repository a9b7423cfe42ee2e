# What `make install` brings beside the programs: man pages and completions, which the programs write themselves, and the C++
# client for other projects: find_package(gemmd), then gemmd::client.
#
# Two components: `cmake --install build/cpu --component runtime` leaves out what only a compiler needs.

include(CMakePackageConfigHelpers)

# Pages and completions, written anew when a program changed.
set(pages ${CMAKE_BINARY_DIR}/pages)
add_custom_command(
  OUTPUT ${pages}/written
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man1 ${pages}/man5 ${pages}/man8 ${pages}/bash ${pages}/zsh ${pages}/fish
  COMMAND gemmctl man --into ${pages}/man1
  COMMAND gemmd_bench man --into ${pages}/man1
  COMMAND python3 ${CMAKE_SOURCE_DIR}/scripts/man_pages.py $<TARGET_FILE:gemmd> ${pages}
  COMMAND gemmctl completion bash > ${pages}/bash/gemmctl
  COMMAND gemmctl completion zsh > ${pages}/zsh/_gemmctl
  COMMAND gemmctl completion fish > ${pages}/fish/gemmctl.fish
  COMMAND gemmd_bench completion bash > ${pages}/bash/gemmd_bench
  COMMAND gemmd_bench completion zsh > ${pages}/zsh/_gemmd_bench
  COMMAND gemmd_bench completion fish > ${pages}/fish/gemmd_bench.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/written
  DEPENDS gemmctl gemmd gemmd_bench ${CMAKE_SOURCE_DIR}/scripts/man_pages.py ${CMAKE_SOURCE_DIR}/scripts/config_reference.py
          ${CMAKE_SOURCE_DIR}/proto/gemmd/v1/config.proto
  COMMENT "man pages and completions")
add_custom_target(gemmd_pages DEPENDS ${pages}/written)
# All that is installed, to be built before `cmake --install`.
add_custom_target(gemmd_installed DEPENDS gemmd gemmctl gemmd_bench gemmd_client gemmd_grpc_threads_preload gemmd_pages)

install(DIRECTORY ${pages}/man1 ${pages}/man5 ${pages}/man8 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT runtime)
install(DIRECTORY ${pages}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
install(DIRECTORY ${pages}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT runtime)
install(DIRECTORY ${pages}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
install(DIRECTORY deploy/tuning DESTINATION ${CMAKE_INSTALL_DATADIR}/gemmd COMPONENT runtime FILES_MATCHING PATTERN "*.json")

# Headers keep their paths (client/cpp/client.h, gemmd/v1/types.pb.h) below a folder of their own.
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/gemmd)
file(GLOB public_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/cpp/*.h)
install(FILES ${public_headers} DESTINATION ${headers}/client/cpp COMPONENT development)
# Three that public headers keep members of.
install(FILES client/cpp/internal/connect/held.h client/cpp/internal/connect/replica_pool.h client/cpp/internal/connect/token_file.h
        DESTINATION ${headers}/client/cpp/internal/connect COMPONENT development)
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/gemmd DESTINATION ${headers} COMPONENT development
        FILES_MATCHING PATTERN "*.pb.h")
install(FILES proto/gemmd/v1/armed_region.h DESTINATION ${headers}/gemmd/v1 COMPONENT development)
install(DIRECTORY proto/gemmd DESTINATION ${CMAKE_INSTALL_DATADIR}/gemmd/proto COMPONENT development
        FILES_MATCHING PATTERN "*.proto")

set_target_properties(gemmd_client PROPERTIES EXPORT_NAME client)
set_target_properties(gemmd_proto PROPERTIES EXPORT_NAME proto)
set_target_properties(gemmd_armed PROPERTIES EXPORT_NAME armed)
target_compile_features(gemmd_client INTERFACE cxx_std_20)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gemmd)
install(TARGETS gemmd_client gemmd_proto gemmd_armed EXPORT gemmd
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        INCLUDES DESTINATION ${headers})
install(EXPORT gemmd NAMESPACE gemmd:: FILE gemmdTargets.cmake DESTINATION ${package} COMPONENT development)
configure_package_config_file(cmake/gemmdConfig.cmake.in ${CMAKE_BINARY_DIR}/gemmdConfig.cmake INSTALL_DESTINATION ${package}
                              PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gemmdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gemmdConfig.cmake ${CMAKE_BINARY_DIR}/gemmdConfigVersion.cmake DESTINATION ${package}
        COMPONENT development)
