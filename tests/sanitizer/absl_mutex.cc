// Tells ThreadSanitizer about absl::Mutex, CondVar and Notification.
//
// The distribution's Abseil is not instrumented: its locks are atomics that ThreadSanitizer cannot
// see, and every field guarded by one would be reported. The functions here stand before those of
// the shared library, call them, and announce what happened. Linked into every binary of the preset
// tsan and nothing else.
//
// ThreadSanitizer looks away between an announcement's "pre" and "post": a Condition is evaluated
// there, so what it reads is not checked.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <string_view>

#include "absl/base/config.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

#define GEMMD_STRING_(x) #x
#define GEMMD_STRING(x) GEMMD_STRING_(x)
static_assert(std::string_view(GEMMD_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME)) == "debian3",
              "the mangled names below carry Abseil's inline namespace");

namespace {

// The library's own function of that mangled name.
template <typename Function>
Function* Next(const char* mangled) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, mangled));
}

#define GEMMD_ABSL(rest) "_ZN4absl7debian3" rest
#define GEMMD_ABSL_CONST(rest) "_ZNK4absl7debian3" rest

constexpr unsigned kRead = __tsan_mutex_read_lock;
constexpr unsigned kTry = __tsan_mutex_try_lock;

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() {
  static auto* next = Next<void(Mutex*)>(GEMMD_ABSL("5MutexD1Ev"));
  next(this);
  __tsan_mutex_destroy(this, __tsan_mutex_not_static);
}

void Mutex::Lock() {
  static auto* next = Next<void(Mutex*)>(GEMMD_ABSL("5Mutex4LockEv"));
  __tsan_mutex_pre_lock(this, 0);
  next(this);
  __tsan_mutex_post_lock(this, 0, 0);
}

void Mutex::Unlock() {
  static auto* next = Next<void(Mutex*)>(GEMMD_ABSL("5Mutex6UnlockEv"));
  __tsan_mutex_pre_unlock(this, 0);
  next(this);
  __tsan_mutex_post_unlock(this, 0);
}

bool Mutex::TryLock() {
  static auto* next = Next<bool(Mutex*)>(GEMMD_ABSL("5Mutex7TryLockEv"));
  __tsan_mutex_pre_lock(this, kTry);
  const bool locked = next(this);
  __tsan_mutex_post_lock(this, locked ? kTry : kTry | __tsan_mutex_try_lock_failed, 0);
  return locked;
}

void Mutex::ReaderLock() {
  static auto* next = Next<void(Mutex*)>(GEMMD_ABSL("5Mutex10ReaderLockEv"));
  __tsan_mutex_pre_lock(this, kRead);
  next(this);
  __tsan_mutex_post_lock(this, kRead, 0);
}

void Mutex::ReaderUnlock() {
  static auto* next = Next<void(Mutex*)>(GEMMD_ABSL("5Mutex12ReaderUnlockEv"));
  __tsan_mutex_pre_unlock(this, kRead);
  next(this);
  __tsan_mutex_post_unlock(this, kRead);
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* next =
      Next<void(Mutex*, const Condition&)>(GEMMD_ABSL("5Mutex8LockWhenERKNS0_9ConditionE"));
  __tsan_mutex_pre_lock(this, 0);
  next(this, condition);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static auto* next = Next<bool(Mutex*, const Condition&, Time)>(
      GEMMD_ABSL("5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  __tsan_mutex_pre_lock(this, 0);
  const bool held = next(this, condition, deadline);
  __tsan_mutex_post_lock(this, 0, 0);
  return held;
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return LockWhenWithDeadline(condition, Now() + timeout);
}

void Mutex::Await(const Condition& condition) {
  static auto* next =
      Next<void(Mutex*, const Condition&)>(GEMMD_ABSL("5Mutex5AwaitERKNS0_9ConditionE"));
  __tsan_mutex_pre_unlock(this, 0);
  __tsan_mutex_post_unlock(this, 0);
  __tsan_mutex_pre_lock(this, 0);
  next(this, condition);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* next = Next<bool(Mutex*, const Condition&, Time)>(
      GEMMD_ABSL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  __tsan_mutex_pre_unlock(this, 0);
  __tsan_mutex_post_unlock(this, 0);
  __tsan_mutex_pre_lock(this, 0);
  const bool held = next(this, condition, deadline);
  __tsan_mutex_post_lock(this, 0, 0);
  return held;
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}

void CondVar::Wait(Mutex* mutex) {
  static auto* next = Next<void(CondVar*, Mutex*)>(GEMMD_ABSL("7CondVar4WaitEPNS0_5MutexE"));
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  next(this, mutex);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* next = Next<bool(CondVar*, Mutex*, Time)>(
      GEMMD_ABSL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_mutex_post_lock(mutex, 0, 0);
  return timed_out;
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return WaitWithDeadline(mutex, Now() + timeout);
}

void Notification::Notify() {
  static auto* next = Next<void(Notification*)>(GEMMD_ABSL("12Notification6NotifyEv"));
  __tsan_release(this);
  next(this);
}

void Notification::WaitForNotification() const {
  static auto* next =
      Next<void(const Notification*)>(GEMMD_ABSL_CONST("12Notification19WaitForNotificationEv"));
  next(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static auto* next = Next<bool(const Notification*, Time)>(
      GEMMD_ABSL_CONST("12Notification31WaitForNotificationWithDeadlineENS0_4TimeE"));
  const bool notified = next(this, deadline);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return WaitForNotificationWithDeadline(Now() + timeout);
}

ABSL_NAMESPACE_END
}  // namespace absl
