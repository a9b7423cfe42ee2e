# Rules, dashboard and documents of deploy/ and docs/ that tell of metrics, as CTest entries: each test_live*.py asks a real
# Prometheus that scrapes a real daemon, and they share one of each. They ask what is exported, so one build is enough: the sanitizer
# presets leave them out.
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/observability)
file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/test_*.py)
set(live ${files})
list(FILTER live INCLUDE REGEX "^test_live")
list(FILTER files EXCLUDE REGEX "^test_live")

set(entry ${GEMMD_VENV_PYTHON} -m pytest -q -p no:cacheprovider --gemmd $<TARGET_FILE:gemmd> --gemmctl $<TARGET_FILE:gemmctl>)
foreach(file IN LISTS files)
  string(REGEX REPLACE "^test_(.*)\\.py$" "observability.\\1" name ${file})
  add_test(NAME ${name} COMMAND ${entry} ${file} WORKING_DIRECTORY ${folder})
  set_tests_properties(${name} PROPERTIES LABELS "python,no_sanitizer" TIMEOUT 900 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endforeach()
add_test(NAME observability.live COMMAND ${entry} ${live} WORKING_DIRECTORY ${folder})
set_tests_properties(observability.live PROPERTIES LABELS "python,e2e,no_sanitizer" TIMEOUT 900 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
