// wgmma, FP8: PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Wgmma<N>::Multiply: 64 rows by N columns by 32 of k, E4M3 operands from shared memory in the
// 128-byte swizzle, FP32 accumulators. Thread t of the warpgroup, with warp w = t/32 and lane l,
// holds in accumulators[4j .. 4j+3] the elements (row, col) = (16w + l/4, 8j + 2(l%4)) and its
// right neighbour, then the two 8 rows further down.

#ifndef GEMMD_KERNELS_CUDA_PTX_WGMMA_CUH_
#define GEMMD_KERNELS_CUDA_PTX_WGMMA_CUH_

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// Orders this warpgroup's register and shared-memory accesses before the wgmma that follow.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses to an accumulator across an asynchronous wgmma.
template <int kCount>
__device__ __forceinline__ void Pin(float (&accumulators)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

// Matrix descriptor (9.7.15.5.1.2.2) of a K-major tile whose rows are 128 bytes, swizzled by 128
// bytes. `units` is the start address in units of 16 bytes; the upper half says 128-byte swizzle
// and 1024 bytes between groups of 8 rows.
__device__ __forceinline__ uint64_t KMajorDescriptor(uint32_t units) {
  return uint64_t{0x40000040} << 32 | units;
}

template <int N>
struct Wgmma;

// Operand lists of 4 registers for 8 columns. R: the text, O: the operands.

#define GEMMD_R0 "%0, %1, %2, %3"
#define GEMMD_R1 \
  GEMMD_R0       \
  ", "           \
  "%4, %5, %6, %7"
#define GEMMD_R2 \
  GEMMD_R1       \
  ", "           \
  "%8, %9, %10, %11"
#define GEMMD_R3 \
  GEMMD_R2       \
  ", "           \
  "%12, %13, %14, %15"
#define GEMMD_R4 \
  GEMMD_R3       \
  ", "           \
  "%16, %17, %18, %19"
#define GEMMD_R5 \
  GEMMD_R4       \
  ", "           \
  "%20, %21, %22, %23"
#define GEMMD_R6 \
  GEMMD_R5       \
  ", "           \
  "%24, %25, %26, %27"
#define GEMMD_R7 \
  GEMMD_R6       \
  ", "           \
  "%28, %29, %30, %31"
#define GEMMD_R8 \
  GEMMD_R7       \
  ", "           \
  "%32, %33, %34, %35"
#define GEMMD_R9 \
  GEMMD_R8       \
  ", "           \
  "%36, %37, %38, %39"
#define GEMMD_R10 \
  GEMMD_R9        \
  ", "            \
  "%40, %41, %42, %43"
#define GEMMD_R11 \
  GEMMD_R10       \
  ", "            \
  "%44, %45, %46, %47"
#define GEMMD_R12 \
  GEMMD_R11       \
  ", "            \
  "%48, %49, %50, %51"
#define GEMMD_R13 \
  GEMMD_R12       \
  ", "            \
  "%52, %53, %54, %55"
#define GEMMD_R14 \
  GEMMD_R13       \
  ", "            \
  "%56, %57, %58, %59"
#define GEMMD_R15 \
  GEMMD_R14       \
  ", "            \
  "%60, %61, %62, %63"
#define GEMMD_R16 \
  GEMMD_R15       \
  ", "            \
  "%64, %65, %66, %67"
#define GEMMD_R17 \
  GEMMD_R16       \
  ", "            \
  "%68, %69, %70, %71"
#define GEMMD_R18 \
  GEMMD_R17       \
  ", "            \
  "%72, %73, %74, %75"
#define GEMMD_R19 \
  GEMMD_R18       \
  ", "            \
  "%76, %77, %78, %79"
#define GEMMD_R20 \
  GEMMD_R19       \
  ", "            \
  "%80, %81, %82, %83"
#define GEMMD_R21 \
  GEMMD_R20       \
  ", "            \
  "%84, %85, %86, %87"
#define GEMMD_R22 \
  GEMMD_R21       \
  ", "            \
  "%88, %89, %90, %91"
#define GEMMD_R23 \
  GEMMD_R22       \
  ", "            \
  "%92, %93, %94, %95"
#define GEMMD_R24 \
  GEMMD_R23       \
  ", "            \
  "%96, %97, %98, %99"
#define GEMMD_R25 \
  GEMMD_R24       \
  ", "            \
  "%100, %101, %102, %103"
#define GEMMD_R26 \
  GEMMD_R25       \
  ", "            \
  "%104, %105, %106, %107"
#define GEMMD_R27 \
  GEMMD_R26       \
  ", "            \
  "%108, %109, %110, %111"
#define GEMMD_R28 \
  GEMMD_R27       \
  ", "            \
  "%112, %113, %114, %115"
#define GEMMD_R29 \
  GEMMD_R28       \
  ", "            \
  "%116, %117, %118, %119"
#define GEMMD_R30 \
  GEMMD_R29       \
  ", "            \
  "%120, %121, %122, %123"
#define GEMMD_R31 \
  GEMMD_R30       \
  ", "            \
  "%124, %125, %126, %127"
#define GEMMD_O0 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define GEMMD_O1 GEMMD_O0, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define GEMMD_O2 GEMMD_O1, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define GEMMD_O3 GEMMD_O2, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define GEMMD_O4 GEMMD_O3, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define GEMMD_O5 GEMMD_O4, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define GEMMD_O6 GEMMD_O5, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define GEMMD_O7 GEMMD_O6, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GEMMD_O8 GEMMD_O7, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define GEMMD_O9 GEMMD_O8, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define GEMMD_O10 GEMMD_O9, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define GEMMD_O11 GEMMD_O10, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define GEMMD_O12 GEMMD_O11, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define GEMMD_O13 GEMMD_O12, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define GEMMD_O14 GEMMD_O13, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define GEMMD_O15 GEMMD_O14, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GEMMD_O16 GEMMD_O15, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define GEMMD_O17 GEMMD_O16, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define GEMMD_O18 GEMMD_O17, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define GEMMD_O19 GEMMD_O18, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define GEMMD_O20 GEMMD_O19, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define GEMMD_O21 GEMMD_O20, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define GEMMD_O22 GEMMD_O21, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define GEMMD_O23 GEMMD_O22, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define GEMMD_O24 GEMMD_O23, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define GEMMD_O25 GEMMD_O24, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define GEMMD_O26 GEMMD_O25, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define GEMMD_O27 GEMMD_O26, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define GEMMD_O28 GEMMD_O27, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define GEMMD_O29 GEMMD_O28, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define GEMMD_O30 GEMMD_O29, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define GEMMD_O31 GEMMD_O30, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// A, B, S: the numbers of the operands behind the accumulators.
#define GEMMD_WGMMA(N, LAST, A, B, S)                                                          \
  template <>                                                                                  \
  struct Wgmma<N> {                                                                            \
    /* accumulate false overwrites d */                                                        \
    static __device__ __forceinline__ void Multiply(float (&d)[N / 2], uint64_t a, uint64_t b, \
                                                    bool accumulate) {                         \
      asm volatile(                                                                            \
          "{\n"                                                                                \
          ".reg .pred p;\n"                                                                    \
          "setp.ne.b32 p, %" #S                                                                \
          ", 0;\n"                                                                             \
          "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" GEMMD_R##LAST           \
          "}, %" #A ", %" #B                                                                   \
          ", p, 1, 1;\n"                                                                       \
          "}"                                                                                  \
          : GEMMD_O##LAST                                                                      \
          : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                \
    }                                                                                          \
  };

GEMMD_WGMMA(8, 0, 4, 5, 6)
GEMMD_WGMMA(16, 1, 8, 9, 10)
GEMMD_WGMMA(24, 2, 12, 13, 14)
GEMMD_WGMMA(32, 3, 16, 17, 18)
GEMMD_WGMMA(40, 4, 20, 21, 22)
GEMMD_WGMMA(48, 5, 24, 25, 26)
GEMMD_WGMMA(56, 6, 28, 29, 30)
GEMMD_WGMMA(64, 7, 32, 33, 34)
GEMMD_WGMMA(72, 8, 36, 37, 38)
GEMMD_WGMMA(80, 9, 40, 41, 42)
GEMMD_WGMMA(88, 10, 44, 45, 46)
GEMMD_WGMMA(96, 11, 48, 49, 50)
GEMMD_WGMMA(104, 12, 52, 53, 54)
GEMMD_WGMMA(112, 13, 56, 57, 58)
GEMMD_WGMMA(120, 14, 60, 61, 62)
GEMMD_WGMMA(128, 15, 64, 65, 66)
GEMMD_WGMMA(136, 16, 68, 69, 70)
GEMMD_WGMMA(144, 17, 72, 73, 74)
GEMMD_WGMMA(152, 18, 76, 77, 78)
GEMMD_WGMMA(160, 19, 80, 81, 82)
GEMMD_WGMMA(168, 20, 84, 85, 86)
GEMMD_WGMMA(176, 21, 88, 89, 90)
GEMMD_WGMMA(184, 22, 92, 93, 94)
GEMMD_WGMMA(192, 23, 96, 97, 98)
GEMMD_WGMMA(200, 24, 100, 101, 102)
GEMMD_WGMMA(208, 25, 104, 105, 106)
GEMMD_WGMMA(216, 26, 108, 109, 110)
GEMMD_WGMMA(224, 27, 112, 113, 114)
GEMMD_WGMMA(232, 28, 116, 117, 118)
GEMMD_WGMMA(240, 29, 120, 121, 122)
GEMMD_WGMMA(248, 30, 124, 125, 126)
GEMMD_WGMMA(256, 31, 128, 129, 130)

#undef GEMMD_WGMMA
#undef GEMMD_R0
#undef GEMMD_O0
#undef GEMMD_R1
#undef GEMMD_O1
#undef GEMMD_R2
#undef GEMMD_O2
#undef GEMMD_R3
#undef GEMMD_O3
#undef GEMMD_R4
#undef GEMMD_O4
#undef GEMMD_R5
#undef GEMMD_O5
#undef GEMMD_R6
#undef GEMMD_O6
#undef GEMMD_R7
#undef GEMMD_O7
#undef GEMMD_R8
#undef GEMMD_O8
#undef GEMMD_R9
#undef GEMMD_O9
#undef GEMMD_R10
#undef GEMMD_O10
#undef GEMMD_R11
#undef GEMMD_O11
#undef GEMMD_R12
#undef GEMMD_O12
#undef GEMMD_R13
#undef GEMMD_O13
#undef GEMMD_R14
#undef GEMMD_O14
#undef GEMMD_R15
#undef GEMMD_O15
#undef GEMMD_R16
#undef GEMMD_O16
#undef GEMMD_R17
#undef GEMMD_O17
#undef GEMMD_R18
#undef GEMMD_O18
#undef GEMMD_R19
#undef GEMMD_O19
#undef GEMMD_R20
#undef GEMMD_O20
#undef GEMMD_R21
#undef GEMMD_O21
#undef GEMMD_R22
#undef GEMMD_O22
#undef GEMMD_R23
#undef GEMMD_O23
#undef GEMMD_R24
#undef GEMMD_O24
#undef GEMMD_R25
#undef GEMMD_O25
#undef GEMMD_R26
#undef GEMMD_O26
#undef GEMMD_R27
#undef GEMMD_O27
#undef GEMMD_R28
#undef GEMMD_O28
#undef GEMMD_R29
#undef GEMMD_O29
#undef GEMMD_R30
#undef GEMMD_O30
#undef GEMMD_R31
#undef GEMMD_O31

}  // namespace gemmd::kernels::cuda::ptx

#endif  // GEMMD_KERNELS_CUDA_PTX_WGMMA_CUH_
