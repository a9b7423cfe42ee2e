# Tests of deploy/ and the Dockerfile as CTest entries, one a file, in the environment that scripts/venv.sh makes for them. They
# ask the real gemmd and gemmctl, so one build is enough: the sanitizer presets leave them out.
set(GEMMD_DEPLOY_PYTHON ${CMAKE_SOURCE_DIR}/build/venv-deploy/bin/python)
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/deploy)

file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/test_*.py)
foreach(file IN LISTS files)
  string(REGEX REPLACE "^test_(.*)\\.py$" "deploy.\\1" name ${file})
  add_test(NAME ${name} WORKING_DIRECTORY ${folder}
           COMMAND ${GEMMD_DEPLOY_PYTHON} -m pytest -q -p no:cacheprovider ${file}
                   --gemmd $<TARGET_FILE:gemmd> --gemmctl $<TARGET_FILE:gemmctl>)
  # cloudcoil's plugin would start clusters of its own.
  set_tests_properties(${name} PROPERTIES LABELS "python,no_sanitizer" TIMEOUT 900
                       ENVIRONMENT "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1;PYTHONDONTWRITEBYTECODE=1")
endforeach()
# A Debian is installed and gemmd compiled in it, twice where there is a CUDA toolkit: minutes.
set_tests_properties(deploy.image PROPERTIES LABELS "python,long,no_sanitizer" TIMEOUT 7200)
