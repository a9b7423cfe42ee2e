// What a Client or Session holds. Default-constructed or moved from it holds nothing, and stands
// for a core that refuses every call and says so.

#pragma once

#include <memory>
#include <utility>

namespace gemmd::client {

template <typename Core>
class Held {
 public:
  Held() = default;
  Held(std::shared_ptr<Core> core) : core_(std::move(core)) {}  // NOLINT: what it holds

  explicit operator bool() const { return core_ != nullptr; }
  operator const std::shared_ptr<Core>&() const {  // NOLINT: what it holds
    return core_ != nullptr ? core_ : Core::None();
  }
  Core& operator*() const { return *static_cast<const std::shared_ptr<Core>&>(*this); }
  Core* operator->() const { return &**this; }

 private:
  std::shared_ptr<Core> core_;  // shared with whatever was made from it
};

}  // namespace gemmd::client
