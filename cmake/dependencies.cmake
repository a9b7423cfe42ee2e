# Every third-party package, all from the distribution. Configs where they exist, pkg-config or plain names elsewhere.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)  # which gRPC uses: hashes of tokens, dates of certificates
find_package(ZLIB REQUIRED)
find_library(GEMMD_ISAL_LIBRARY isal REQUIRED)      # CRC32C with carry-less multiply
find_library(GEMMD_OPENBLAS_LIBRARY NAMES openblas REQUIRED)
find_path(GEMMD_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas REQUIRED)
find_program(GEMMD_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

if(GEMMD_CUDA STREQUAL "AUTO")
  find_program(GEMMD_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(GEMMD_NVCC)
    set(GEMMD_HAVE_CUDA ON)
  else()
    set(GEMMD_HAVE_CUDA OFF)
    message(STATUS "gemmd: no nvcc found, building for the CPU only")
  endif()
else()
  set(GEMMD_HAVE_CUDA ${GEMMD_CUDA})
endif()

# Checks of the sources, and what the CUDA kernels are compiled through.
if(GEMMD_TESTS OR GEMMD_HAVE_CUDA)
  find_program(GEMMD_PYTHON3 NAMES /usr/bin/python3 python3 REQUIRED)
endif()
if(GEMMD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  include(GoogleTest)
endif()

find_program(GEMMD_CCACHE ccache)
if(GEMMD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # base_dir and no hash_dir: the presets' build folders share one cache. The sloppiness is what precompiled headers need.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${GEMMD_CCACHE})
endif()
