#include "server/engine/sessions/published.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/observe/label.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

absl::Status NoName(std::string_view name) {
  return WithReason(absl::NotFoundError(absl::StrCat("no buffer is published as ", Text(name),
                                                     "; publish one, or check the spelling")),
                    reason::kNameUnknown);
}

}  // namespace

absl::Status PublishedBuffers::Publish(const Tenant& tenant, std::string_view name,
                                       const BufferRef& ref) {
  if (absl::Status checked = CheckName(name); !checked.ok()) return checked;
  if (ref.buffer->upload().active) {
    return WithReason(absl::FailedPreconditionError(
                          "an upload to this buffer is under way; publish it when that is done"),
                      reason::kUploadBusy);
  }
  if (ref.buffer->spec().kind == kernels::MemoryKind::kDeviceImported) {
    return WithReason(
        absl::FailedPreconditionError(
            "the buffer is imported: its memory goes with the process that owns it, a name would "
            "outlive that; copy it into a buffer of the server's and publish that"),
        reason::kNotShared);
  }
  absl::MutexLock lock(&mutex_);
  if (auto named = names_.find(ref.buffer.get()); named != names_.end() || ref.found) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "this buffer is published already",
                          named != names_.end() ? absl::StrCat(" as ", named->second) : "",
                          "; unpublish it first")),
                      reason::kNameTaken);
  }
  auto [it, fresh] = by_name_.try_emplace(Key(tenant.index(), std::string(name)), ref.buffer);
  if (!fresh) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat("a buffer is published as ", Text(name),
                                              "; unpublish it or choose another name")),
        reason::kNameTaken);
  }
  names_.emplace(ref.buffer.get(), std::string(name));
  ref.buffer->MarkPublished();
  return absl::OkStatus();
}

absl::StatusOr<BufferLease> PublishedBuffers::Find(const Tenant& tenant,
                                                   std::string_view name) const {
  if (absl::Status checked = CheckName(name); !checked.ok()) return checked;
  absl::MutexLock lock(&mutex_);
  auto it = by_name_.find(Key(tenant.index(), std::string(name)));
  if (it == by_name_.end()) return NoName(name);
  return it->second;
}

absl::Status PublishedBuffers::Unpublish(const Tenant& tenant, std::string_view name) {
  if (absl::Status checked = CheckName(name); !checked.ok()) return checked;
  BufferLease released;  // freed after the lock is let go
  absl::MutexLock lock(&mutex_);
  auto it = by_name_.find(Key(tenant.index(), std::string(name)));
  if (it == by_name_.end()) return NoName(name);
  released = std::move(it->second);
  names_.erase(released.get());
  by_name_.erase(it);
  return absl::OkStatus();
}

std::vector<BufferLease> PublishedBuffers::List(const Tenant& tenant) const {
  std::vector<std::pair<std::string, BufferLease>> named;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, buffer] : by_name_) {
      if (key.first == tenant.index()) named.emplace_back(key.second, buffer);
    }
  }
  std::sort(named.begin(), named.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<BufferLease> buffers;
  buffers.reserve(named.size());
  for (auto& [name, buffer] : named) buffers.push_back(std::move(buffer));
  return buffers;
}

std::string PublishedBuffers::NameOf(const Buffer& buffer) const {
  if (!buffer.published()) return "";
  absl::MutexLock lock(&mutex_);
  auto it = names_.find(&buffer);
  return it == names_.end() ? "" : it->second;
}

void PublishedBuffers::Clear() {
  decltype(by_name_) released;
  absl::MutexLock lock(&mutex_);
  released.swap(by_name_);
  names_.clear();
}

}  // namespace gemmd::server
