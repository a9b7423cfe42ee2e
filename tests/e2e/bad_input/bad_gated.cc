#include <functional>
#include <limits>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// silu(gate) * up of a [4, 16] in a, into a [4, 8] of E4M3 in d with its scales in b.
v1::Op GoodGate(const Prepared& p) {
  v1::Op op;
  v1::Gated& gated = *op.mutable_gated();
  *gated.mutable_src() = View(p.a, {4, 16});
  *gated.mutable_dst() = View(p.d, {4, 8}, v1::DTYPE_E4M3);
  *gated.mutable_scales() = View(p.b, {4, 1});
  gated.set_activation(v1::ACTIVATION_SILU);
  return op;
}

BadInput Bad(std::string name, std::vector<std::string> says,
             std::function<void(const Prepared&, v1::Gated&)> spoil) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = GoodGate(p);
            spoil(p, *op.mutable_gated());
            return p.wire.Execute(p.session, {op});
          }};
}

}  // namespace

std::vector<BadInput> BadGated() {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return {
      Bad("GatedWithoutDst", {"ops[0].gated.dst", "required"},
          [](auto&, v1::Gated& gated) { gated.clear_dst(); }),
      Bad("GatedOddColumns", {"op 0 (gated)", "15 columns", "n of gate and n of up"},
          [](auto& p, v1::Gated& gated) {
            *gated.mutable_src() = View(p.a, {4, 15});
          }),
      Bad("GatedDstOfAnotherWidth", {"[4, 7]", "[4, 8]", "reshape dst"},
          [](auto& p, v1::Gated& gated) {
            *gated.mutable_dst() = View(p.d, {4, 7}, v1::DTYPE_E4M3);
          }),
      Bad("GatedPeriodThatDoesNotDivide", {"period=3", "n=8", "use 0"},
          [](auto&, v1::Gated& gated) { gated.set_period(3); }),
      Bad("GatedPeriodBeyondTheMatrix", {"period=9223372036854775807", "n=8"},
          [](auto&, v1::Gated& gated) { gated.set_period(std::numeric_limits<int64_t>::max()); }),
      Bad("GatedNegativePeriod", {"period=-1", "n=8"},
          [](auto&, v1::Gated& gated) { gated.set_period(-1); }),
      Bad("GatedUnknownActivation", {"activation 77", "not known"},
          [](auto&, v1::Gated& gated) { gated.set_activation(static_cast<v1::Activation>(77)); }),
      Bad("GatedAlphaWithoutSilu", {"alpha=2", "relu", "silu"},
          [](auto&, v1::Gated& gated) {
            gated.set_activation(v1::ACTIVATION_RELU);
            gated.set_alpha(2);
          }),
      Bad("GatedAlphaZero", {"alpha=0", "above 0"},
          [](auto&, v1::Gated& gated) { gated.set_alpha(0); }),
      Bad("GatedNegativeLimit", {"limit=-7", "use 0"},
          [](auto&, v1::Gated& gated) { gated.set_limit(-7); }),
      Bad("GatedOffsetNotFinite", {"up_offset=nan", "finite"},
          [](auto&, v1::Gated& gated) { gated.set_up_offset(kNaN); }),
      Bad("GatedE4m3WithoutScales", {"no scales", "[4, 1]"},
          [](auto&, v1::Gated& gated) { gated.clear_scales(); }),
      Bad("GatedScalesOfF32", {"scales are given", "f32", "drop them"},
          [](auto&, v1::Gated& gated) { gated.mutable_dst()->set_dtype(v1::DTYPE_F32); }),
      Bad("GatedIntoI8", {"dst is i8", "e4m3"},
          [](auto&, v1::Gated& gated) { gated.mutable_dst()->set_dtype(v1::DTYPE_I8); }),
      Bad("GatedInPlace", {"dst", "overlaps src", "apart"},
          [](auto& p, v1::Gated& gated) { gated.mutable_dst()->set_buffer_id(p.a); }),
      Bad("GatedScalesOverDst", {"dst", "overlaps scales", "apart"},
          [](auto& p, v1::Gated& gated) { gated.mutable_scales()->set_buffer_id(p.d); }),
  };
}

}  // namespace gemmd::e2e
