#include "server/engine/sessions/tenant.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    Release();
    quota_ = other.quota_;
    amount_ = other.amount_;
    other.quota_ = nullptr;
  }
  return *this;
}

void Charge::Release() {
  if (quota_ != nullptr) quota_->used_.fetch_sub(amount_, std::memory_order_relaxed);
  quota_ = nullptr;
}

std::optional<Charge> Charge::Take(Quota& quota, int64_t amount, int64_t limit) {
  int64_t used = quota.used_.load(std::memory_order_relaxed);
  do {
    // `amount` and `used` are non-negative, so limit - used cannot overflow.
    if (limit > 0 && amount > limit - used) return std::nullopt;
  } while (!quota.used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
  return Charge(&quota, amount);
}

Tenant::Tenant(int index, const TenantConfig& config)
    : index_(index), name_(config.name), weight_(config.weight), limits_(nullptr) {
  Reconfigure(config);
}

void Tenant::Reconfigure(const TenantConfig& config) {
  absl::MutexLock lock(&mutex_);
  weight_.store(config.weight, std::memory_order_relaxed);
  history_.push_back(std::make_unique<const Limits>(config.limits));
  limits_.store(history_.back().get(), std::memory_order_release);
}

absl::StatusOr<Charge> Tenant::Take(Quota& quota, int64_t amount, int64_t limit,
                                    std::string_view what, std::string_view reason,
                                    std::string_view remedy) {
  if (auto charge = Charge::Take(quota, amount, limit)) return std::move(*charge);
  return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                        "tenant ", name_, " has ", quota.used(), " ", Text(what), ", asked for ",
                        amount, " more, limit ", limit, "; ", Text(remedy))),
                    reason);
}

absl::StatusOr<Charge> Tenant::TakeSession() {
  return Take(sessions_, 1, limits().max_sessions, "sessions", reason::kSessionLimit,
              "close sessions that are done");
}
absl::StatusOr<Charge> Tenant::TakeBuffer() {
  return Take(buffers_, 1, limits().max_buffers, "buffers", reason::kBufferLimit,
              "delete buffers or keep several tensors in one");
}
absl::StatusOr<Charge> Tenant::TakeBufferBytes(int64_t bytes) {
  return Take(buffer_bytes_, bytes, limits().max_buffer_bytes, "buffer bytes",
              reason::kBufferBytesLimit, "delete buffers");
}
absl::StatusOr<Charge> Tenant::TakePlan() {
  return Take(plans_, 1, limits().max_plans, "plans", reason::kPlanLimit, "delete plans");
}
absl::StatusOr<Charge> Tenant::TakeArmed() {
  return Take(armed_, 1, limits().max_armed, "plans armed", reason::kArmedLimit,
              "disarm plans that are done");
}
absl::StatusOr<Charge> Tenant::TakeProgram() {
  return Take(programs_, 1, limits().max_queued_programs, "programs queued", reason::kQueueLimit,
              "wait for some to complete, then retry");
}
absl::StatusOr<Charge> Tenant::TakeStream() {
  return Take(streams_, 1, limits().max_streams, "streams open", reason::kStreamLimit,
              "close streams that are done");
}

absl::StatusOr<Charge> Tenant::TakeHostBytes(int64_t bytes) {
  return Take(host_bytes_, bytes, limits().max_host_bytes,
              "bytes of host memory (max_host_bytes: plans, programs, results not read)",
              reason::kHostBytesLimit, "read results, delete plans, or send less at once");
}
std::optional<Charge> Tenant::TrySpareHostBytes(int64_t bytes) {
  return Charge::Take(host_bytes_, bytes, limits().max_host_bytes);
}
std::optional<Charge> Tenant::TryRememberedBytes(int64_t bytes) {
  return Charge::Take(remembered_bytes_, bytes, limits().max_host_bytes / 4);
}

absl::StatusOr<Charge> Tenant::TakeDeviceTime(absl::Duration time) {
  const int64_t us = std::max<int64_t>(1, absl::ToInt64Microseconds(time));
  const absl::Duration limit = limits().max_queued_device_time;
  const bool bounded = limit != absl::InfiniteDuration();
  const int64_t limit_us = bounded ? absl::ToInt64Microseconds(limit) : 0;
  if (auto charge = Charge::Take(queued_us_, us, limit_us)) return std::move(*charge);
  if (queued_us_.used() == 0) return std::move(*Charge::Take(queued_us_, us, 0));
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "tenant ", name_, " has ", absl::FormatDuration(absl::Microseconds(queued_us_.used())),
          " of device time queued, asked for ", absl::FormatDuration(absl::Microseconds(us)),
          " more, limit ", absl::FormatDuration(limit), "; wait for some to complete, then retry")),
      reason::kQueuedTimeLimit);
}

TenantDirectory::TenantDirectory(absl::Span<const TenantConfig> tenants) { Reconfigure(tenants); }

void TenantDirectory::Reconfigure(absl::Span<const TenantConfig> tenants) {
  for (const TenantConfig& config : tenants) {
    if (Tenant* tenant = Find(config.name)) {
      tenant->Reconfigure(config);
      continue;
    }
    absl::MutexLock lock(&mutex_);
    tenants_.push_back(std::make_unique<Tenant>(next_index_++, config));
  }
}

Tenant& TenantDirectory::AddInternal(const TenantConfig& config) {
  absl::MutexLock lock(&mutex_);
  internal_.push_back(std::make_unique<Tenant>(next_index_++, config));
  return *internal_.back();
}

Tenant* TenantDirectory::Find(std::string_view name) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& tenant : tenants_) {
    if (tenant->name() == name) return tenant.get();
  }
  return nullptr;
}

std::vector<Tenant*> TenantDirectory::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Tenant*> all;
  for (const auto& tenant : tenants_) all.push_back(tenant.get());
  return all;
}

}  // namespace gemmd::server
