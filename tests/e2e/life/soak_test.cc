// Minutes long; `make soak`.

#include "tests/e2e/churn.h"

namespace gemmd::e2e {
namespace {

TEST(SoakTest, AHundredThousandCyclesAreFlat) { ExpectFlat(100000); }

}  // namespace
}  // namespace gemmd::e2e
