# client/python's tests as CTest entries, one a file, with the interpreter that scripts/venv.sh prepares. They test Python,
# so one build is enough: the sanitizer presets leave them out.
set(GEMMD_VENV_PYTHON ${CMAKE_SOURCE_DIR}/build/venv/bin/python)
set(pytest ${GEMMD_VENV_PYTHON} -m pytest -q -p no:cacheprovider)
set(folder ${CMAKE_SOURCE_DIR}/client/python)

# New test files appear by themselves; CONFIGURE_DEPENDS looks again at every build.
file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder}/tests ${folder}/tests/test_*.py ${folder}/tests/layers/test_*.py
     ${folder}/tests/mistakes/test_*.py)
foreach(file IN LISTS files)
  string(REPLACE "/test_" "_" name ${file})
  string(REGEX REPLACE "^(test_)?(.*)\\.py$" "python.\\2" name ${name})
  add_test(NAME ${name} COMMAND ${pytest} tests/${file} WORKING_DIRECTORY ${folder})
  set_tests_properties(${name} PROPERTIES LABELS "python,no_sanitizer" TIMEOUT 900)
endforeach()
# pytest ends with 5 when no test ran: here, where torch is not installed.
set_tests_properties(python.torch python.layers_adopt python.layers_adopt_chain python.layers_adopt_names
                     python.layers_adopt_stays
                     python.layers_attention python.layers_autocast python.layers_compile python.layers_decoding
                     python.layers_einsums python.layers_experts python.layers_growth python.layers_heads
                     python.layers_layout python.layers_likes python.layers_masks
                     python.layers_mixtures python.layers_padding python.layers_replays python.layers_routers python.layers_scaled
                     python.layers_siblings
                     python.layers_spelling python.layers_spelt_norms
                     PROPERTIES SKIP_RETURN_CODE 5)

file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder}/tests/e2e ${folder}/tests/e2e/test_*.py)
foreach(file IN LISTS files)
  string(REGEX REPLACE "^test_(.*)\\.py$" "python.e2e_\\1" name ${file})
  add_test(NAME ${name} WORKING_DIRECTORY ${folder}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/e2e/with_daemon.sh $<TARGET_FILE:gemmd> ${pytest} tests/e2e/${file}
                   --gemmd-server @SERVER@)
  set_tests_properties(${name} PROPERTIES LABELS "python,e2e,no_sanitizer" TIMEOUT 900)
endforeach()

set_tests_properties(python.e2e_compile python.e2e_experts python.e2e_kinds python.e2e_replays PROPERTIES SKIP_RETURN_CODE 5)

add_test(NAME python.e2e_digits
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/e2e/with_daemon.sh $<TARGET_FILE:gemmd> ${GEMMD_VENV_PYTHON}
                 ${CMAKE_SOURCE_DIR}/examples/digits/digits.py --server @SERVER@)
set_tests_properties(python.e2e_digits PROPERTIES LABELS "python,e2e,no_sanitizer" TIMEOUT 900)

add_test(NAME gemmctl_screens
         COMMAND ${pytest} ${CMAKE_CURRENT_SOURCE_DIR}/client/cli/screens --gemmctl $<TARGET_FILE:gemmctl>
                 --gemmd $<TARGET_FILE:gemmd>)
set_tests_properties(gemmctl_screens PROPERTIES LABELS "cpu,no_sanitizer" TIMEOUT 900)
