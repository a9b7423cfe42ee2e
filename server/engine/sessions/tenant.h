// Tenants: who work belongs to, what share of a device it gets, and what it may hold. Every
// quantity a client can grow is taken from a Quota of its tenant and given back by a Charge's
// destructor, so that no path can forget to.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/engine/config.h"
#include "server/engine/sessions/upload_pace.h"

namespace gemmd::server {

// An amount in use, against a limit that the caller reads fresh (limits change on reload).
// Thread-safe.
class Quota {
 public:
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class Charge;
  std::atomic<int64_t> used_{0};
};

// An amount taken from a Quota until destruction. Move-only. The Quota must outlive it.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept : quota_(other.quota_), amount_(other.amount_) {
    other.quota_ = nullptr;
  }
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { Release(); }
  void Release();

  // Nothing when `used + amount` would pass `limit` (limit <= 0: unlimited).
  static std::optional<Charge> Take(Quota& quota, int64_t amount, int64_t limit);

 private:
  Charge(Quota* quota, int64_t amount) : quota_(quota), amount_(amount) {}
  Quota* quota_ = nullptr;
  int64_t amount_ = 0;
};

// Lives as long as the server. Thread-safe.
class Tenant {
 public:
  Tenant(int index, const TenantConfig& config);

  int index() const { return index_; }  // dense, for arrays by tenant
  const std::string& name() const { return name_; }
  double weight() const { return weight_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return *limits_.load(std::memory_order_acquire); }
  void Reconfigure(const TenantConfig& config);

  // Takes one of what the tenant may hold. RESOURCE_EXHAUSTED names use, limit and remedy.
  absl::StatusOr<Charge> TakeSession();
  absl::StatusOr<Charge> TakeBuffer();
  absl::StatusOr<Charge> TakeBufferBytes(int64_t bytes);
  absl::StatusOr<Charge> TakePlan();
  absl::StatusOr<Charge> TakeArmed();
  absl::StatusOr<Charge> TakeProgram();
  absl::StatusOr<Charge> TakeStream();
  // Host memory beside buffers, for as long as the tenant's work holds it.
  absl::StatusOr<Charge> TakeHostBytes(int64_t bytes);
  // The same for what need not be kept; and, for answers that are remembered for retries, up to a
  // quarter of the limit beside it, so that they leave room for work. Nothing when it is full.
  std::optional<Charge> TrySpareHostBytes(int64_t bytes);
  std::optional<Charge> TryRememberedBytes(int64_t bytes);
  // Estimated device time of a program that is accepted; the only one always fits.
  absl::StatusOr<Charge> TakeDeviceTime(absl::Duration time);
  // Counts bytes that an Upload brought; how long its stream waits before it reads on.
  absl::Duration PaceUpload(int64_t bytes, absl::Time now) {
    return upload_pace_.Take(bytes, limits().max_upload_bytes_per_second, now);
  }

  // What it holds now.
  struct Usage {
    int64_t sessions = 0;
    int64_t buffer_bytes = 0;
    int64_t host_bytes = 0;
    absl::Duration queued_device_time;
  };
  Usage usage() const {
    return {sessions_.used(), buffer_bytes_.used(), host_bytes_.used(),
            absl::Microseconds(queued_us_.used())};
  }

 private:
  absl::StatusOr<Charge> Take(Quota& quota, int64_t amount, int64_t limit, std::string_view what,
                              std::string_view reason, std::string_view remedy);

  const int index_;
  const std::string name_;
  std::atomic<double> weight_;
  std::atomic<const Limits*> limits_;
  absl::Mutex mutex_;
  // Limits once read may still be in use after a reload; there are few reloads, so all are kept.
  std::vector<std::unique_ptr<const Limits>> history_ ABSL_GUARDED_BY(mutex_);

  Quota sessions_, buffers_, buffer_bytes_, plans_, armed_, programs_, streams_;
  Quota host_bytes_, remembered_bytes_;
  Quota queued_us_;  // of device time
  UploadPace upload_pace_;
};

// The tenants by name. Tenants are added on reload and never removed: work may still belong to
// them.
class TenantDirectory {
 public:
  explicit TenantDirectory(absl::Span<const TenantConfig> tenants);
  void Reconfigure(absl::Span<const TenantConfig> tenants);
  // Of work that the server does for itself. No caller is of it: neither Find nor All has it.
  Tenant& AddInternal(const TenantConfig& config);
  Tenant* Find(std::string_view name) const;  // null when there is none
  std::vector<Tenant*> All() const;

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Tenant>> tenants_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Tenant>> internal_ ABSL_GUARDED_BY(mutex_);
  int next_index_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::server
