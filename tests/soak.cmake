# A daemon under everything at once (tests/soak): for 20 seconds with the other tests, for 15 minutes with the long ones.
# gemmd_leaky is gemmd with a leak planted, which the same checks must find.
gemmd_binary(gemmd_leaky NO_INSTALL
             SRCS ${CMAKE_SOURCE_DIR}/server/main.cc ${CMAKE_SOURCE_DIR}/server/default_listeners.cc
                  ${CMAKE_SOURCE_DIR}/server/options.cc ${CMAKE_SOURCE_DIR}/server/places.cc ${CMAKE_SOURCE_DIR}/server/signals.cc
                  ${CMAKE_SOURCE_DIR}/server/engine/sessions/session_store.cc
             DEPS gemmd_server gemmd_processes prometheus-cpp::core)
target_compile_definitions(gemmd_leaky PRIVATE GEMMD_PLANTED_LEAK)

set(folder ${CMAKE_CURRENT_SOURCE_DIR}/soak)
set(entry ${GEMMD_VENV_PYTHON} -m pytest -q -s -p no:cacheprovider test_soak.py --gemmd $<TARGET_FILE:gemmd>
          --gemmd-leaky $<TARGET_FILE:gemmd_leaky> --doomed-client $<TARGET_FILE:gemmd_doomed_client>)
add_test(NAME soak.short COMMAND ${entry} --seconds 20 WORKING_DIRECTORY ${folder})
set_tests_properties(soak.short PROPERTIES LABELS "python,e2e,no_sanitizer" TIMEOUT 900)
add_test(NAME soak.mixed COMMAND ${entry} --seconds 900 WORKING_DIRECTORY ${folder})
set_tests_properties(soak.mixed PROPERTIES LABELS "python,long,no_sanitizer" TIMEOUT 1500 RUN_SERIAL ON)
set_tests_properties(soak.short soak.mixed PROPERTIES ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")

# What a hostile pass once found, tried again through public doors (tests/hostile/findings).
set(findings)
foreach(name plans queues copies deadline session limit terminal share_tenant descriptors)  # the others need root
  list(APPEND findings --only ${name})
endforeach()
add_test(NAME hostile.findings
         COMMAND ${GEMMD_VENV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hostile/findings ${CMAKE_BINARY_DIR} ${findings})
set_tests_properties(hostile.findings PROPERTIES LABELS "hostile,python,long,no_sanitizer" TIMEOUT 900 RUN_SERIAL ON
                     ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
