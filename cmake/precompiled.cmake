# Precompiled headers: parsing gRPC, Abseil and GoogleTest again in every file took two thirds of a cold build.
#
# A precompiled header serves what is compiled with the same options: libraries and what is in tests/ have one each, and
# libraries without gRPC a smaller one. A file with options of its own needs SKIP_PRECOMPILE_HEADERS.

option(GEMMD_PRECOMPILED "Parse the headers that most files include once" ON)

# For ccache. And behind a precompiled header GCC 12 sees errors inside the standard library that are none.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(gemmd_precompiled_options -fpch-preprocess -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow
      -Wno-stringop-overread)
else()
  set(gemmd_precompiled_options -Xclang -fno-pch-timestamp)
endif()

# gemmd_precompile(TARGET KIND): KIND is base, grpc or test, the headers of cmake/precompiled/.
function(gemmd_precompile name kind)
  if(GEMMD_PRECOMPILED)
    target_precompile_headers(${name} REUSE_FROM gemmd_precompiled_${kind})
    target_compile_options(${name} PRIVATE ${gemmd_precompiled_options})
    if(NOT kind STREQUAL base)  # for ccache's run of clang's preprocessor, which reads the headers themselves
      target_include_directories(${name} PRIVATE $<TARGET_PROPERTY:gemmd_proto,INTERFACE_INCLUDE_DIRECTORIES>)
    endif()
  endif()
endfunction()

# Not by ccache: where an older precompiled header lies, GCC's preprocessor names that file instead of reading the headers, and
# ccache takes for the same what differs since.
function(gemmd_make_precompiled kind)
  set_target_properties(gemmd_precompiled_${kind} PROPERTIES CXX_COMPILER_LAUNCHER "")
  target_link_libraries(gemmd_precompiled_${kind} PRIVATE gemmd_flags ${ARGN})
  target_precompile_headers(gemmd_precompiled_${kind} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${kind}.h)
  target_compile_options(gemmd_precompiled_${kind} PRIVATE ${gemmd_precompiled_options})
endfunction()

if(GEMMD_PRECOMPILED)
  set(abseil absl::flat_hash_map absl::status absl::statusor absl::strings absl::synchronization absl::time absl::span)
  add_library(gemmd_precompiled_base OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cc)
  gemmd_make_precompiled(base ${abseil})
  add_library(gemmd_precompiled_grpc OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cc)
  gemmd_make_precompiled(grpc ${abseil} gemmd_proto gRPC::grpc++ protobuf::libprotobuf)
  if(GEMMD_TESTS)
    add_library(gemmd_precompiled_test OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cc)
    gemmd_make_precompiled(test ${abseil} gemmd_proto gRPC::grpc++ protobuf::libprotobuf GTest::gmock GTest::gtest)
    target_compile_options(gemmd_precompiled_test PRIVATE ${gemmd_test_options})
  endif()
endif()
