# gemmd_library(NAME SRCS ... DEPS ... PRIVATE_DEPS ...)   a static library with the house's warnings
# gemmd_binary(NAME SRCS ... DEPS ...)                     an executable, installed unless NO_INSTALL is given
# gemmd_test(NAME SRCS ... DEPS ... LABELS ...)            a GoogleTest binary, one CTest entry per TEST

add_library(gemmd_flags INTERFACE)
target_include_directories(gemmd_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(gemmd_flags INTERFACE -Wall -Wextra -Wno-sign-compare -Wno-missing-field-initializers)
# As -pthread does, which comes with gRPC: a precompiled header serves targets with and without it. Clang wants the flag itself.
target_compile_definitions(gemmd_flags INTERFACE _REENTRANT)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  target_compile_options(gemmd_flags INTERFACE -pthread)
endif()
# Warnings are errors with the compilers CI uses; another version's new warning must not keep anybody from building.
if((CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  target_compile_options(gemmd_flags INTERFACE -Werror)
endif()
# Of several files compiled at once GCC takes all but the generated one for headers.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(gemmd_flags INTERFACE -Wno-subobject-linkage)
endif()
if(GEMMD_SANITIZE)
  # vptr looks at memory through a pipe, and takes a process out of descriptors for one with a broken object. object-size takes
  # a quarter of a compilation, and what it would find at run time ASan finds.
  target_compile_options(gemmd_flags INTERFACE -fsanitize=${GEMMD_SANITIZE} -fno-sanitize=vptr,object-size
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gemmd_flags INTERFACE -fsanitize=${GEMMD_SANITIZE})
endif()
# Tests spend their time in what they test; optimising them took a third of a cold build, and half of a sanitizer's objects' time.
# -fPIC, which executables do without otherwise: one precompiled header serves them and the libraries beside them.
if(GEMMD_SANITIZE)
  set(gemmd_test_options -O0 -fPIC)
else()
  set(gemmd_test_options -O1 -fPIC)
endif()
# Tests and sanitizer builds are linked by lld where there is one: it takes a fifth of the time. What users get is linked by
# what the compiler comes with.
find_program(GEMMD_LLD ld.lld)
set(gemmd_fast_linker)
if(GEMMD_LLD)
  set(gemmd_fast_linker -fuse-ld=lld)
endif()
if(GEMMD_SANITIZE)
  target_link_options(gemmd_flags INTERFACE ${gemmd_fast_linker})
endif()
# What every executable of a sanitizer build carries beside its own.
if(GEMMD_SANITIZE STREQUAL "thread")
  add_library(gemmd_sanitizer OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitizer/absl_mutex.cc)
elseif(GEMMD_SANITIZE MATCHES "address")
  add_library(gemmd_sanitizer OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitizer/stack_size.cc)
endif()
if(TARGET gemmd_sanitizer)
  target_link_libraries(gemmd_sanitizer PUBLIC gemmd_flags absl::synchronization ${CMAKE_DL_LIBS})
endif()
if(GEMMD_FUZZ AND NOT GEMMD_SANITIZE STREQUAL "thread")  # there its counters, which threads share, would be races
  target_compile_options(gemmd_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The program finds shared libraries in ../lib beside its folder: scripts/dist.sh puts them there. An RPATH, since a
# RUNPATH would not hold for what those libraries need in turn.
function(gemmd_relocatable name)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib" INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# What is in tests/ and not installed: with the tests' options and precompiled header.
function(gemmd_of_tests name)
  target_compile_options(${name} PRIVATE ${gemmd_test_options})
  # As where the precompiled header was made, also for what has no TEST in it.
  target_compile_options(${name} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
  gemmd_precompile(${name} test)
  target_link_options(${name} PRIVATE ${gemmd_fast_linker})
endfunction()

function(gemmd_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  # Our warnings are not for who installs the library and links it.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:gemmd_flags> ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests")
    gemmd_of_tests(${name})
  elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "/kernels|/server/engine|/server/guard|/client/armed")
    gemmd_precompile(${name} base)
  else()
    gemmd_precompile(${name} grpc)
  endif()
endfunction()

function(gemmd_sanitizer_parts name)
  if(TARGET gemmd_sanitizer)
    target_link_libraries(${name} PRIVATE gemmd_sanitizer)
  endif()
endfunction()

function(gemmd_binary name)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE gemmd_flags ${ARG_DEPS})
  gemmd_sanitizer_parts(${name})
  gemmd_relocatable(${name})
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests")
    gemmd_of_tests(${name})
  endif()
  if(NOT ARG_NO_INSTALL)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endfunction()

function(gemmd_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)  # of one that hangs: a busy machine may take a minute for what takes seconds
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE gemmd_flags ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  gemmd_of_tests(${name})
  gemmd_sanitizer_parts(${name})
  if(name MATCHES "_gpu_test$|^e2e_")
    gemmd_relocatable(${name})
  endif()
  # gtest_discover_tests loses all but the first of several labels, and the timeout with them: "e2e,long" is one.
  list(JOIN ARG_LABELS "," label)
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS "${label}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
