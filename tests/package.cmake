# What leaves this repository: packages, an installation, the wire API and the examples in other languages. Packages are of one
# build, so the sanitizer presets leave them out.
set(package ${CMAKE_CURRENT_SOURCE_DIR}/package)
set(beside_daemon ${CMAKE_CURRENT_SOURCE_DIR}/e2e/with_daemon.sh $<TARGET_FILE:gemmd>)
set(GEMMD_VENV_PYTHON ${CMAKE_SOURCE_DIR}/build/venv/bin/python)

add_test(NAME proto_compat COMMAND ${GEMMD_VENV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/proto_compat.py)
add_test(NAME proto_compat_test COMMAND ${GEMMD_VENV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/proto_compat_test.py)
add_test(NAME version COMMAND ${GEMMD_PYTHON3} ${CMAKE_SOURCE_DIR}/scripts/version.py --check)
set_tests_properties(proto_compat proto_compat_test version PROPERTIES LABELS "static,package,no_sanitizer" TIMEOUT 900)

add_test(NAME package.consumer COMMAND ${beside_daemon} ${package}/consumer.sh ${CMAKE_BINARY_DIR} @SERVER@)
foreach(language go javascript rust)
  add_test(NAME package.${language} COMMAND ${beside_daemon} ${package}/clients.sh ${language} @TCP@)
endforeach()
foreach(kind wheel deb)
  add_test(NAME package.${kind} COMMAND ${GEMMD_PYTHON3} ${package}/install.py ${kind} ${CMAKE_BINARY_DIR})
  add_test(NAME package.${kind}_debian COMMAND ${GEMMD_PYTHON3} ${package}/install.py ${kind} ${CMAKE_BINARY_DIR} --debian)
  list(APPEND installed package.${kind})
  list(APPEND fresh package.${kind}_debian)
endforeach()
add_test(NAME package.service COMMAND ${GEMMD_PYTHON3} ${package}/service.py ${CMAKE_BINARY_DIR})
set_tests_properties(package.javascript PROPERTIES LABELS "package,no_sanitizer" TIMEOUT 900 SKIP_RETURN_CODE 77)
# Minutes: gemmd is packed or a project compiled, and packages are fetched; for some a Debian is installed first.
set_tests_properties(package.consumer package.go package.rust package.service ${installed} ${fresh} PROPERTIES LABELS "package,long,no_sanitizer" TIMEOUT 1800 SKIP_RETURN_CODE 77)
