# The CUDA toolkit, for builds that have it. Kernels use sm_90a instructions (wgmma, setmaxnreg), so that is all they are
# built for. The runtime is linked statically and the driver is asked for its entry points at run time: a binary starts on
# a machine with no GPU, and says so.

if(GEMMD_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(GEMMD_NVCC nvcc PATHS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${GEMMD_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below: CMake's list has no such suffix for every version
set(CMAKE_CUDA_STANDARD 17)  # of the check that the compiler works; the kernels' own follows
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # Debian 12's CMake does not know that nvcc has it
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# Debian 12's CMake sets a property of this library whether the toolkit has it or not, and from CUDA 13 on none has.
if(NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit REQUIRED)

# Most of a cold build was kernels whose machine code no test reads, on machines without a GPU.
option(GEMMD_QUICK_KERNELS "Compile few of the kernels that are UNREAD, and fast instead of well: for tests that meet no GPU" OFF)

# gemmd_cuda_kernels(NAME [UNREAD] SRCS a.cu ...)   device code and its launchers: raw CUDA, no Abseil
# UNREAD: no tuning table, reference or test depends on their machine code.
function(gemmd_cuda_kernels name)
  cmake_parse_arguments(ARG "UNREAD" "" "SRCS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE
    -gencode=arch=compute_90a,code=sm_90a -O3 --expt-relaxed-constexpr -Xptxas=--warn-on-spills,--register-usage-level=10
    -Xcompiler=-Wall)
  if(GEMMD_QUICK_KERNELS AND ARG_UNREAD)
    target_compile_options(${name} PRIVATE -Ofc=mid)
    target_compile_definitions(${name} PRIVATE GEMMD_QUICK_KERNELS)
  endif()
  target_link_libraries(${name} PUBLIC CUDA::cudart_static)
endfunction()
