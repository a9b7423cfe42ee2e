#include <functional>
#include <limits>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// A layer norm of a [4, 16] in a, into E4M3 in d. In b lie the scales, and from byte 1024 on weight
// and bias.
v1::Op GoodNorm(const Prepared& p) {
  v1::Op op;
  v1::Normalize& norm = *op.mutable_normalize();
  *norm.mutable_src() = View(p.a, {4, 16});
  *norm.mutable_dst() = View(p.d, {4, 16}, v1::DTYPE_E4M3);
  *norm.mutable_scales() = View(p.b, {4, 1});
  *norm.mutable_weight() = View(p.b, {16}, v1::DTYPE_F32, 1024);
  *norm.mutable_bias() = View(p.b, {16}, v1::DTYPE_F32, 2048);
  norm.set_centered(true);
  return op;
}

BadInput Bad(std::string name, std::vector<std::string> says,
             std::function<void(const Prepared&, v1::Normalize&)> spoil) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = GoodNorm(p);
            spoil(p, *op.mutable_normalize());
            return p.wire.Execute(p.session, {op});
          }};
}

}  // namespace

std::vector<BadInput> BadNormalize() {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {
      Bad("NormalizeWithoutSrc", {"ops[0].normalize.src", "required"},
          [](auto&, v1::Normalize& norm) { norm.clear_src(); }),
      Bad("NormalizeOfAVector", {"op 0 (normalize)", "src has shape [16]", "2 dimensions"},
          [](auto& p, v1::Normalize& norm) { *norm.mutable_src() = View(p.a, {16}); }),
      Bad("NormalizeDstOfAnotherWidth", {"[4, 15]", "[4, 16]", "reshape dst"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_dst() = View(p.d, {4, 15}, v1::DTYPE_E4M3);
          }),
      Bad("NormalizeWeightByRows", {"weight has shape [4]", "[16]", "reshape weight"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_weight() = View(p.b, {4}, v1::DTYPE_F32, 1024);
          }),
      Bad("NormalizeBiasOfAMatrix", {"bias has shape [1, 16]", "[16]", "reshape bias"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_bias() = View(p.b, {1, 16}, v1::DTYPE_F32, 2048);
          }),
      Bad("NormalizeWeightOfBF16", {"weight is bf16", "f32"},
          [](auto&, v1::Normalize& norm) { norm.mutable_weight()->set_dtype(v1::DTYPE_BF16); }),
      Bad("NormalizeBiasBeyondItsBuffer", {"bias reaches byte 4144", "4096", "larger buffer"},
          [](auto&, v1::Normalize& norm) { norm.mutable_bias()->set_offset_bytes(4080); }),
      Bad("NormalizeNegativeEpsilon", {"epsilon=-1", "finite", "1e-5"},
          [](auto&, v1::Normalize& norm) { norm.set_epsilon(-1); }),
      Bad("NormalizeEpsilonNotANumber", {"epsilon=nan", "finite"},
          [](auto&, v1::Normalize& norm) { norm.set_epsilon(kNaN); }),
      Bad("NormalizeEpsilonInfinite", {"epsilon=inf", "finite"},
          [](auto&, v1::Normalize& norm) { norm.set_epsilon(kInfinity); }),
      Bad("NormalizeE4m3WithoutScales", {"no scales", "[4, 1]"},
          [](auto&, v1::Normalize& norm) { norm.clear_scales(); }),
      Bad("NormalizeScalesOfF32", {"scales are given", "f32", "drop them"},
          [](auto&, v1::Normalize& norm) { norm.mutable_dst()->set_dtype(v1::DTYPE_F32); }),
      Bad("NormalizeOfI8", {"src is i8", "bf16"},
          [](auto&, v1::Normalize& norm) { norm.mutable_src()->set_dtype(v1::DTYPE_I8); }),
      Bad("NormalizeIntoI8", {"dst is i8", "e4m3"},
          [](auto&, v1::Normalize& norm) { norm.mutable_dst()->set_dtype(v1::DTYPE_I8); }),
      Bad("NormalizeInPlace", {"dst", "overlaps src", "apart"},
          [](auto& p, v1::Normalize& norm) { norm.mutable_dst()->set_buffer_id(p.a); }),
      Bad("NormalizeScalesOverDst", {"dst", "overlaps scales", "apart"},
          [](auto& p, v1::Normalize& norm) { norm.mutable_scales()->set_buffer_id(p.d); }),
      Bad("NormalizeSumWithoutAddend", {"a sum is given but no addend", "copy src"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_sum() = View(p.b, {4, 16});
          }),
      Bad("NormalizeAddendOfAnotherHeight",
          {"addend has shape [3, 16]", "[4, 16]", "reshape addend"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_addend() = View(p.a, {3, 16});
          }),
      Bad("NormalizeAddendOfBF16", {"addend is bf16", "f32"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_addend() = View(p.a, {4, 16}, v1::DTYPE_BF16);
          }),
      Bad("NormalizeSumOfAnotherWidth", {"sum has shape [4, 8]", "[4, 16]", "reshape sum"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_addend() = norm.src();
            *norm.mutable_sum() = View(p.a, {4, 8}, v1::DTYPE_F32, 1024);
          }),
      Bad("NormalizeSumAcrossSrc", {"sum", "overlaps src", "apart"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_addend() = norm.src();
            *norm.mutable_sum() = View(p.a, {4, 16}, v1::DTYPE_F32, 64);
          }),
      Bad("NormalizeSumOverDst", {"dst", "overlaps sum", "apart"},
          [](auto& p, v1::Normalize& norm) {
            *norm.mutable_addend() = norm.src();
            *norm.mutable_sum() = View(p.d, {4, 16});
          }),
      Bad("NormalizeScalesOverWeight", {"scales", "overlaps weight", "apart"},
          [](auto&, v1::Normalize& norm) { norm.mutable_scales()->set_offset_bytes(1024); }),
  };
}

}  // namespace gemmd::e2e
