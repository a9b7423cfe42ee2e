#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

using grpc::StatusCode;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// A 4x4 matmul whose A the case describes; B and D are fine.
std::function<grpc::Status(Prepared&)> WithA(std::function<v1::Tensor(Prepared&)> a) {
  return [a = std::move(a)](Prepared& p) {
    return p.wire.Execute(p.session, {MatmulOp(a(p), View(p.b, {4, 4}), View(p.d, {4, 4}))});
  };
}

// A good 4x4 matmul that the case spoils.
std::function<grpc::Status(Prepared&)> Spoiled(std::function<void(Prepared&, v1::Matmul&)> spoil) {
  return [spoil = std::move(spoil)](Prepared& p) {
    v1::Op op = MatmulOp(View(p.a, {4, 4}), View(p.b, {4, 4}), View(p.d, {4, 4}));
    spoil(p, *op.mutable_matmul());
    return p.wire.Execute(p.session, {op});
  };
}

// E4M3 operands with 1x128 scales of the given shapes, k = 256.
std::function<grpc::Status(Prepared&)> Scaled(std::vector<int64_t> a_scales,
                                              v1::DType scale_dtype) {
  return [=](Prepared& p) {
    v1::Op op = MatmulOp(View(p.a, {4, 256}, v1::DTYPE_E4M3), View(p.b, {4, 256}, v1::DTYPE_E4M3),
                         View(p.d, {4, 4}));
    v1::Matmul& matmul = *op.mutable_matmul();
    matmul.mutable_a()->set_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
    *matmul.mutable_a()->mutable_scales() = View(p.a, a_scales, scale_dtype, 2048);
    matmul.mutable_b()->set_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
    *matmul.mutable_b()->mutable_scales() = View(p.b, {4, 2}, v1::DTYPE_F32, 2048);
    return p.wire.Execute(p.session, {op});
  };
}

v1::Tensor F32(const std::string& buffer, std::vector<int64_t> shape, int64_t offset = 0,
               std::vector<int64_t> strides = {}) {
  return View(buffer, shape, v1::DTYPE_F32, offset, strides);
}

}  // namespace

std::vector<BadInput> BadTensors() {
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  return {
      {"NegativeExtent", kInvalid, {"a", "-4"}, WithA([](auto& p) {
         return F32(p.a, {-4, 4});
       })},
      {"NegativeExtentOfARead",
       kInvalid,
       {"-4"},
       [](auto& p) {
         return p.wire.Execute(p.session, {ReadOp(F32(p.a, {-4, 4}))});
       }},
      {"LeastExtentOfARead",
       kInvalid,
       {"-9223372036854775808"},
       [](auto& p) { return p.wire.Execute(p.session, {ReadOp(F32(p.a, {kMin}))}); }},
      {"ExtentsOverflow", kInvalid, {"a", "int64"}, WithA([](auto& p) {
         return F32(p.a, {kMax, kMax});
       })},
      {"BytesOverflow", kInvalid, {"a"}, WithA([](auto& p) {
         return F32(p.a, {1LL << 61, 4});
       })},
      {"MinimumExtent", kInvalid, {"negative"}, WithA([](auto& p) {
         return F32(p.a, {kMin, 4});
       })},
      {"NegativeStride", kInvalid, {"stride", "-1", "negative"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 0, {-1, 1});
       })},
      {"StrideOverflow", kInvalid, {"int64"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 0, {kMax, 1});
       })},
      {"StrideOutOfBuffer", kInvalid, {"4096"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 0, {1024, 1});
       })},
      {"NegativeOffset", kInvalid, {"offset_bytes", "-4", "negative"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, -4);
       })},
      {"MinimumOffset", kInvalid, {"offset_bytes"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, kMin);
       })},
      {"MisalignedOffset", kInvalid, {"offset_bytes=6", "multiple of 4"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 6);
       })},
      {"OffsetAtTheEnd", kInvalid, {"4096"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 4096);
       })},
      {"OffsetOverflow", kInvalid, {"int64"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, kMax - 3);
       })},
      {"OneElementTooMany", kInvalid, {"4100", "4096"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 4096 - 60);
       })},
      {"RankFour", kInvalid, {"4", "3"}, WithA([](auto& p) {
         return F32(p.a, {1, 1, 4, 4});
       })},
      {"VectorAsMatrix", kInvalid, {"[16]"}, WithA([](auto& p) { return F32(p.a, {16}); })},
      {"StridesOfAnotherRank", kInvalid, {"strides"}, WithA([](auto& p) {
         return F32(p.a, {4, 4}, 0, {4});
       })},
      {"UntypedBufferWithoutDType", kInvalid, {"dtype"}, WithA([](auto& p) {
         return View(p.a, {4, 4}, v1::DTYPE_UNSPECIFIED);
       })},
      {"UnknownDType", kInvalid, {"99"}, WithA([](auto& p) {
         return View(p.a, {4, 4}, static_cast<v1::DType>(99));
       })},
      {"MissingBuffer", kInvalid, {"buffer_id"}, WithA([](auto&) {
         return F32("", {4, 4});
       })},
      {"ShortHandle", kInvalid, {"buffer_id", "16"}, WithA([](auto&) {
         return F32("short", {4, 4});
       })},
      {"UnknownHandle", StatusCode::NOT_FOUND, {"buffer"}, WithA([](auto&) {
         return F32(std::string(16, 'x'), {4, 4});
       })},
      {"InnerExtentsDiffer", kInvalid, {"k=5", "k=4"}, WithA([](auto& p) {
         return F32(p.a, {4, 5});
       })},
      {"OutputShapeDiffers", kInvalid, {"d", "[3, 4]", "[4, 4]"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_d() = F32(p.d, {3, 4});
       })},
      {"DTypesDiffer", kInvalid, {"f32", "bf16"}, WithA([](auto& p) {
         return View(p.a, {4, 4}, v1::DTYPE_BF16);
       })},
      {"OutputOfAStorageType", kInvalid, {"e4m3", "f32"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_d() = View(p.d, {4, 4}, v1::DTYPE_E4M3);
       })},
      {"OutputIsInput", kInvalid, {"overlap"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_d() = F32(p.a, {4, 4});
       })},
      {"OutputMeetsInputInOneByte", kInvalid, {"overlap"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_d() = F32(p.b, {4, 4}, 60);
       })},
      {"OutputOverItself", kInvalid, {"strides"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_d() = F32(p.d, {4, 4}, 0, {1, 1});
       })},
      {"BetaWithoutC", kInvalid, {"beta", "c"}, Spoiled([](auto&, auto& m) { m.set_beta(0.5f); })},
      {"AlphaIsNaN", kInvalid, {"alpha", "finite"}, Spoiled([](auto&, auto& m) {
         m.set_alpha(NAN);
       })},
      {"BetaIsInfinite", kInvalid, {"beta", "finite"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_c() = F32(p.d, {4, 4});
         m.set_beta(INFINITY);
       })},
      {"BiasOfAnotherLength", kInvalid, {"bias", "[5]", "[4]"}, Spoiled([](auto& p, auto& m) {
         *m.mutable_bias() = F32(p.b, {5}, 1024);
       })},
      {"UnknownKernel", StatusCode::NOT_FOUND, {"no_such_kernel"}, Spoiled([](auto&, auto& m) {
         m.set_kernel("no_such_kernel");
       })},
      {"UnknownActivation", kInvalid, {"77"}, Spoiled([](auto&, auto& m) {
         m.set_activation(static_cast<v1::Activation>(77));
       })},
      {"MissingOperand", kInvalid, {"b"}, Spoiled([](auto&, auto& m) { m.clear_b(); })},
      {"ScalesWithoutGranularity",
       kInvalid,
       {"scales", "granularity"},
       Spoiled([](auto& p, auto& m) { *m.mutable_a()->mutable_scales() = F32(p.a, {1}, 1024); })},
      {"GranularityWithoutScales", kInvalid, {"1x128", "scales"}, Spoiled([](auto&, auto& m) {
         m.mutable_a()->set_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
       })},
      {"ScalesOfAnotherShape", kInvalid, {"[4, 3]", "[4, 2]"}, Scaled({4, 3}, v1::DTYPE_F32)},
      {"ScalesOfAnotherType", kInvalid, {"bf16", "f32"}, Scaled({4, 2}, v1::DTYPE_BF16)},
  };
}

}  // namespace gemmd::e2e
