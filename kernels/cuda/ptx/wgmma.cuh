// wgmma: PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Multiply: 64 rows by N columns by 32 bytes of k, operands from shared memory in the 128-byte
// swizzle. Wgmma<N> takes E4M3, WgmmaBf16<N> BF16 and WgmmaF16<N> FP16, all with FP32 accumulators;
// WgmmaS8<N> takes INT8 and has S32 ones. Of 16-bit types operands may lie along their rows, not
// along k: A's (..Rows), B's (..Cols), or both (..Mn). Thread t of the warpgroup, with warp w =
// t/32 and lane l, holds in accumulators[4j .. 4j+3] the elements (row, col) = (16w + l/4, 8j +
// 2(l%4)) and its right neighbour, then the two 8 rows further down.

#pragma once

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
template <int kCount>
__device__ __forceinline__ void Pin(int (&accumulators)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(accumulators[i])::"memory");
}

// Matrix descriptor (9.7.15.5.1.2.2) of a K-major tile whose rows are 128 bytes, swizzled by 128
// bytes. `units` is the start address in units of 16 bytes; the upper half says 128-byte swizzle
// and 1024 bytes between groups of 8 rows.
__device__ __forceinline__ uint64_t KMajorDescriptor(uint32_t units) {
  return uint64_t{0x40000040} << 32 | units;
}

// Likewise (9.7.15.5.1.2.2) of an MN-major tile in boxes of `kBoxBytes`: 64 rows, 128 bytes of one
// k, lie together, k behind k; 1024 bytes between groups of 8 k. Above `units` the distance between
// boxes stands: they must have 14 bits.
template <int kBoxBytes>
__device__ __forceinline__ uint64_t MnMajorDescriptor(uint32_t units) {
  return uint64_t{0x40000040} << 32 | uint64_t{kBoxBytes / 16} << 16 | units;
}

template <int N>
struct Wgmma;
template <int N>
struct WgmmaBf16;
template <int N>
struct WgmmaBf16Rows;
template <int N>
struct WgmmaBf16Cols;
template <int N>
struct WgmmaBf16Mn;
template <int N>
struct WgmmaF16;
template <int N>
struct WgmmaF16Rows;
template <int N>
struct WgmmaF16Cols;
template <int N>
struct WgmmaF16Mn;
template <int N>
struct WgmmaS8;

// Operand lists of 4 registers for 8 columns. R: the text, O: the operands, each by C.

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
#define GEMMD_O0(C) C(d[0]), C(d[1]), C(d[2]), C(d[3])
#define GEMMD_O1(C) GEMMD_O0(C), C(d[4]), C(d[5]), C(d[6]), C(d[7])
#define GEMMD_O2(C) GEMMD_O1(C), C(d[8]), C(d[9]), C(d[10]), C(d[11])
#define GEMMD_O3(C) GEMMD_O2(C), C(d[12]), C(d[13]), C(d[14]), C(d[15])
#define GEMMD_O4(C) GEMMD_O3(C), C(d[16]), C(d[17]), C(d[18]), C(d[19])
#define GEMMD_O5(C) GEMMD_O4(C), C(d[20]), C(d[21]), C(d[22]), C(d[23])
#define GEMMD_O6(C) GEMMD_O5(C), C(d[24]), C(d[25]), C(d[26]), C(d[27])
#define GEMMD_O7(C) GEMMD_O6(C), C(d[28]), C(d[29]), C(d[30]), C(d[31])
#define GEMMD_O8(C) GEMMD_O7(C), C(d[32]), C(d[33]), C(d[34]), C(d[35])
#define GEMMD_O9(C) GEMMD_O8(C), C(d[36]), C(d[37]), C(d[38]), C(d[39])
#define GEMMD_O10(C) GEMMD_O9(C), C(d[40]), C(d[41]), C(d[42]), C(d[43])
#define GEMMD_O11(C) GEMMD_O10(C), C(d[44]), C(d[45]), C(d[46]), C(d[47])
#define GEMMD_O12(C) GEMMD_O11(C), C(d[48]), C(d[49]), C(d[50]), C(d[51])
#define GEMMD_O13(C) GEMMD_O12(C), C(d[52]), C(d[53]), C(d[54]), C(d[55])
#define GEMMD_O14(C) GEMMD_O13(C), C(d[56]), C(d[57]), C(d[58]), C(d[59])
#define GEMMD_O15(C) GEMMD_O14(C), C(d[60]), C(d[61]), C(d[62]), C(d[63])
#define GEMMD_O16(C) GEMMD_O15(C), C(d[64]), C(d[65]), C(d[66]), C(d[67])
#define GEMMD_O17(C) GEMMD_O16(C), C(d[68]), C(d[69]), C(d[70]), C(d[71])
#define GEMMD_O18(C) GEMMD_O17(C), C(d[72]), C(d[73]), C(d[74]), C(d[75])
#define GEMMD_O19(C) GEMMD_O18(C), C(d[76]), C(d[77]), C(d[78]), C(d[79])
#define GEMMD_O20(C) GEMMD_O19(C), C(d[80]), C(d[81]), C(d[82]), C(d[83])
#define GEMMD_O21(C) GEMMD_O20(C), C(d[84]), C(d[85]), C(d[86]), C(d[87])
#define GEMMD_O22(C) GEMMD_O21(C), C(d[88]), C(d[89]), C(d[90]), C(d[91])
#define GEMMD_O23(C) GEMMD_O22(C), C(d[92]), C(d[93]), C(d[94]), C(d[95])
#define GEMMD_O24(C) GEMMD_O23(C), C(d[96]), C(d[97]), C(d[98]), C(d[99])
#define GEMMD_O25(C) GEMMD_O24(C), C(d[100]), C(d[101]), C(d[102]), C(d[103])
#define GEMMD_O26(C) GEMMD_O25(C), C(d[104]), C(d[105]), C(d[106]), C(d[107])
#define GEMMD_O27(C) GEMMD_O26(C), C(d[108]), C(d[109]), C(d[110]), C(d[111])
#define GEMMD_O28(C) GEMMD_O27(C), C(d[112]), C(d[113]), C(d[114]), C(d[115])
#define GEMMD_O29(C) GEMMD_O28(C), C(d[116]), C(d[117]), C(d[118]), C(d[119])
#define GEMMD_O30(C) GEMMD_O29(C), C(d[120]), C(d[121]), C(d[122]), C(d[123])
#define GEMMD_O31(C) GEMMD_O30(C), C(d[124]), C(d[125]), C(d[126]), C(d[127])
#define GEMMD_FP32(x) "+f"(x)
#define GEMMD_S32(x) "+r"(x)

// SHAPE, TYPES: of the instruction. FLAGS: what follows the predicate. SUM, C: the accumulators'
// type and constraint. A, B, S: the numbers of the operands behind the accumulators.
#define GEMMD_WGMMA(NAME, SHAPE, TYPES, FLAGS, SUM, C, N, LAST, A, B, S)                           \
  template <>                                                                                      \
  struct NAME<N> {                                                                                 \
    /* accumulate false overwrites d */                                                            \
    static __device__ __forceinline__ void Multiply(SUM (&d)[N / 2], uint64_t a, uint64_t b,       \
                                                    bool accumulate) {                             \
      asm volatile(                                                                                \
          "{\n"                                                                                    \
          ".reg .pred p;\n"                                                                        \
          "setp.ne.b32 p, %" #S                                                                    \
          ", 0;\n"                                                                                 \
          "wgmma.mma_async.sync.aligned.m64n" #N SHAPE TYPES " {" GEMMD_R##LAST "}, %" #A ", %" #B \
                                                                                ", p" FLAGS        \
                                                                                ";\n"              \
                                                                                "}"                \
          : GEMMD_O##LAST(C)                                                                       \
          : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                    \
    }                                                                                              \
  };
// The last two flags: A's and B's lie along their rows.
#define GEMMD_WGMMA_HALF(NAME, TYPES, N, LAST, A, B, S)                                      \
  GEMMD_WGMMA(NAME, "k16", TYPES, ", 1, 1, 0, 0", float, GEMMD_FP32, N, LAST, A, B, S)       \
  GEMMD_WGMMA(NAME##Rows, "k16", TYPES, ", 1, 1, 1, 0", float, GEMMD_FP32, N, LAST, A, B, S) \
  GEMMD_WGMMA(NAME##Cols, "k16", TYPES, ", 1, 1, 0, 1", float, GEMMD_FP32, N, LAST, A, B, S) \
  GEMMD_WGMMA(NAME##Mn, "k16", TYPES, ", 1, 1, 1, 1", float, GEMMD_FP32, N, LAST, A, B, S)
#define GEMMD_WGMMA_FLOAT(N, LAST, A, B, S)                                                  \
  GEMMD_WGMMA(Wgmma, "k32", ".f32.e4m3.e4m3", ", 1, 1", float, GEMMD_FP32, N, LAST, A, B, S) \
  GEMMD_WGMMA_HALF(WgmmaBf16, ".f32.bf16.bf16", N, LAST, A, B, S)                            \
  GEMMD_WGMMA_HALF(WgmmaF16, ".f32.f16.f16", N, LAST, A, B, S)
// Integers have fewer widths.
#define GEMMD_WGMMA_ALL(N, LAST, A, B, S) \
  GEMMD_WGMMA_FLOAT(N, LAST, A, B, S)     \
  GEMMD_WGMMA(WgmmaS8, "k32", ".s32.s8.s8", "", int, GEMMD_S32, N, LAST, A, B, S)

GEMMD_WGMMA_ALL(8, 0, 4, 5, 6)
GEMMD_WGMMA_ALL(16, 1, 8, 9, 10)
GEMMD_WGMMA_ALL(24, 2, 12, 13, 14)
GEMMD_WGMMA_ALL(32, 3, 16, 17, 18)
GEMMD_WGMMA_FLOAT(40, 4, 20, 21, 22)
GEMMD_WGMMA_ALL(48, 5, 24, 25, 26)
GEMMD_WGMMA_FLOAT(56, 6, 28, 29, 30)
GEMMD_WGMMA_ALL(64, 7, 32, 33, 34)
GEMMD_WGMMA_FLOAT(72, 8, 36, 37, 38)
GEMMD_WGMMA_ALL(80, 9, 40, 41, 42)
GEMMD_WGMMA_FLOAT(88, 10, 44, 45, 46)
GEMMD_WGMMA_ALL(96, 11, 48, 49, 50)
GEMMD_WGMMA_FLOAT(104, 12, 52, 53, 54)
GEMMD_WGMMA_ALL(112, 13, 56, 57, 58)
GEMMD_WGMMA_FLOAT(120, 14, 60, 61, 62)
GEMMD_WGMMA_ALL(128, 15, 64, 65, 66)
GEMMD_WGMMA_FLOAT(136, 16, 68, 69, 70)
GEMMD_WGMMA_ALL(144, 17, 72, 73, 74)
GEMMD_WGMMA_FLOAT(152, 18, 76, 77, 78)
GEMMD_WGMMA_ALL(160, 19, 80, 81, 82)
GEMMD_WGMMA_FLOAT(168, 20, 84, 85, 86)
GEMMD_WGMMA_ALL(176, 21, 88, 89, 90)
GEMMD_WGMMA_FLOAT(184, 22, 92, 93, 94)
GEMMD_WGMMA_ALL(192, 23, 96, 97, 98)
GEMMD_WGMMA_FLOAT(200, 24, 100, 101, 102)
GEMMD_WGMMA_ALL(208, 25, 104, 105, 106)
GEMMD_WGMMA_FLOAT(216, 26, 108, 109, 110)
GEMMD_WGMMA_ALL(224, 27, 112, 113, 114)
GEMMD_WGMMA_FLOAT(232, 28, 116, 117, 118)
GEMMD_WGMMA_ALL(240, 29, 120, 121, 122)
GEMMD_WGMMA_FLOAT(248, 30, 124, 125, 126)
GEMMD_WGMMA_ALL(256, 31, 128, 129, 130)

#undef GEMMD_WGMMA_ALL
#undef GEMMD_WGMMA_FLOAT
#undef GEMMD_WGMMA_HALF
#undef GEMMD_WGMMA
#undef GEMMD_FP32
#undef GEMMD_S32
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
