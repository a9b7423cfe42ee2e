// What libFuzzer goes by under the thread sanitizer, where the code counts nothing: an input is new
// when it has neighbouring bytes, at about that place, that none before it had. So the targets get
// inputs of every kind, but nothing tells which of them reach new code: the preset asan finds
// those.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kPlaces = 32, kKinds = 8;  // of an index, and of a byte
// libFuzzer looks at this section and clears it (LLVM, libFuzzer's extra counters).
__attribute__((used, section("__libfuzzer_extra_counters")))
uint8_t features[kPlaces * kKinds * kKinds];

// The first bytes each have a kind of their own, further ones share theirs.
size_t PlaceOf(size_t index) { return std::min(index, kPlaces - 1); }

}  // namespace

extern "C" int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t before = 0;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t kind = data[i] % kKinds;
    features[(PlaceOf(i) * kKinds + before) * kKinds + kind] = 1;
    before = kind;
  }
  return __real_LLVMFuzzerTestOneInput(data, size);
}
