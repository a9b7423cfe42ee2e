// wgmma whose 64 rows come from registers: PTX ISA 9.7.15.5.1, "Register Fragments". From shared
// memory the rows take as long as 64 columns do, however few there are.

#ifndef GEMMD_KERNELS_CUDA_PTX_WGMMA_REGISTERS_CUH_
#define GEMMD_KERNELS_CUDA_PTX_WGMMA_REGISTERS_CUH_

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// 64 rows by 16 columns by 32 of k, E4M3, accumulators as in wgmma.cuh. Thread t of the warpgroup,
// with warp w = t/32 and lane l, has of row 16w + l/4 four bytes of k from 4 (l%4) on in a[0], of 8
// rows further down in a[1], and of k + 16 in a[2] and a[3]: what ldmatrix leaves of 16 rows of 32
// bytes. They change no more until the wgmma is waited for.
__device__ __forceinline__ void WgmmaOfRegisters16(float (&d)[8], const uint32_t (&a)[4],
                                                   uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3"
      " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

}  // namespace gemmd::kernels::cuda::ptx

#endif  // GEMMD_KERNELS_CUDA_PTX_WGMMA_REGISTERS_CUH_
