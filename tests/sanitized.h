// Whether this is a sanitizer's build, where memory stays after its end and arithmetic is slow.

#pragma once

// GCC says it by macros, Clang by features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GEMMD_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GEMMD_SANITIZED true
#endif
#endif
#ifndef GEMMD_SANITIZED
#define GEMMD_SANITIZED false
#endif

namespace gemmd {

inline constexpr bool kSanitized = GEMMD_SANITIZED;

}  // namespace gemmd
