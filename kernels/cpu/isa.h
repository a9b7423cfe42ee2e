// One loop, compiled for several instruction sets and chosen at run time: the binary must start on
// plain x86-64-v2 and still use AVX-512 where it is.
//
//   GEMMD_ALWAYS_INLINE void ScaleBody(float* x, int64_t n, float f) { for (...) x[i] *= f; }
//   GEMMD_ISA_CLONES(Scale, (float* x, int64_t n, float f), (x, n, f))   // defines Scale()
//
// Not target_clones: its resolvers run before a sanitizer's runtime is up and crash there.

#pragma once

#include <string_view>

#define GEMMD_ALWAYS_INLINE inline __attribute__((always_inline))

namespace gemmd::kernels::cpu {

enum class Isa { kBaseline, kAvx2, kAvx512 };

inline Isa DetectIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

inline Isa BestIsa() {
  static const Isa isa = DetectIsa();
  return isa;
}

inline std::string_view Name(Isa isa) {
  if (isa == Isa::kAvx512) return "avx512";
  return isa == Isa::kAvx2 ? "avx2" : "baseline";
}

}  // namespace gemmd::kernels::cpu

#if defined(__x86_64__)
#if defined(__clang__)
#define GEMMD_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), min_vector_width(512)))
#else
#define GEMMD_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")))
#endif
#define GEMMD_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define GEMMD_ISA_CLONES(name, params, args)                               \
  GEMMD_TARGET_AVX512 static void name##Avx512 params { name##Body args; } \
  GEMMD_TARGET_AVX2 static void name##Avx2 params { name##Body args; }     \
  static void name##Baseline params { name##Body args; }                   \
  void name params {                                                       \
    switch (BestIsa()) {                                                   \
      case Isa::kAvx512:                                                   \
        return name##Avx512 args;                                          \
      case Isa::kAvx2:                                                     \
        return name##Avx2 args;                                            \
      case Isa::kBaseline:                                                 \
        return name##Baseline args;                                        \
    }                                                                      \
  }
#else
#define GEMMD_ISA_CLONES(name, params, args) \
  void name params { name##Body args; }
#endif
