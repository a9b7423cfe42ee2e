// The region of armed plans under a hostile owner: the input says what another thread writes into
// it, again and again, while plans are armed, disarmed and run. Whatever it writes, another
// session's runs stay right, and nothing is left behind.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/server_state.h"
#include "tests/server/engine/armed_caller.h"

namespace gemmd::server {
namespace {

constexpr int64_t kSide = 4;
constexpr int64_t kBytes = kSide * kSide * static_cast<int64_t>(sizeof(float));
constexpr int kSlots = 32;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "fuzz_armed: %s\n", what);
  std::abort();
}
void Check(bool holds, const char* what) {
  if (!holds) Die(what);
}

// A session with a region and a plan: d = a @ b, all ones times `value`s.
struct Owner {
  Owner(ServerState& server, float value) : state(server) {
    SessionStore::OpenOptions options;
    options.device = state.devices()[0].get();
    options.ttl = absl::Hours(1);
    session = *state.sessions().Open(*state.tenants().Find("default"), options);
    std::vector<float> ones(kSide * kSide, 1), values(kSide * kSide, value);
    a = Add(ones);
    b = Add(values);
    d = Add(ones);
    SlotTable slots(*session);
    kernels::MatmulOp matmul;
    matmul.a.values = View(slots, a);
    matmul.b.values = View(slots, b);
    matmul.d = View(slots, d);
    const kernels::Op op = matmul;
    auto compiled = CompilePlan(*session, {&op, 1}, slots, {}, "fuzz");
    Check(compiled.ok(), "the plan is refused");
    plan = *session->AddPlan(*std::move(compiled));
    region = *state.armed().RegionOf(*session, kSlots);
    caller = std::make_unique<ArmedCaller>(region->memfd(), region->wake_fd(), region->slots());
  }
  ~Owner() { state.sessions().End(*session, EndCause::kClosed); }

  Handle Add(const std::vector<float>& values) {
    auto buffer = Buffer::Create(session->tenant(), *session->options().device,
                                 {.size_bytes = kBytes}, absl::Now());
    Check(buffer.ok(), "no buffer");
    Check((*buffer)
              ->memory()
              .CopyIn(0, {reinterpret_cast<const std::byte*>(values.data()), kBytes})
              .ok(),
          "no copy");
    return *session->AddBuffer({.buffer = *std::move(buffer)});
  }
  static kernels::TensorRef View(SlotTable& slots, const Handle& handle) {
    kernels::TensorRef tensor;
    tensor.slot = *slots.Resolve(handle);
    tensor.shape = kernels::MakeDims({kSide, kSide});
    tensor.strides = kernels::RowMajorStrides(tensor.shape);
    return tensor;
  }
  absl::StatusOr<ArmedRegion::Armed> Arm(bool by_stream) {
    return region->Arm(*session->Use(absl::Now()), plan, {}, {.rung_by_stream = by_stream});
  }

  ServerState& state;
  std::shared_ptr<Session> session;
  Handle a, b, d, plan;
  std::shared_ptr<ArmedRegion> region;
  std::unique_ptr<ArmedCaller> caller;
};

struct World {
  World() {
    Config config;
    config.tenants = {{.name = "default"}};
    config.share.disabled = true;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(*kernels::CreateCpuBackend({.name = "cpu:0", .threads = 1}));
    state = *ServerState::Create(config, std::move(backends), clock, log, metrics, "fuzz");
    victim = std::make_unique<Owner>(*state, 3);
    slot = victim->Arm(false)->slot;
  }
  SystemClock clock;
  Log log{LogConfig{.level = LogLevel::kError}};
  Metrics metrics{"fuzz"};
  std::unique_ptr<ServerState> state;
  std::unique_ptr<Owner> victim;
  int slot = 0;
};

// Pairs of an offset in words and a value, written in turns until the end.
class Scribbler {
 public:
  Scribbler(ArmedCaller& caller, const uint8_t* data, size_t size) {
    const uint32_t words = gemmd_armed_size_bytes(kSlots) / sizeof(uint32_t);
    for (size_t i = 0; i + 4 <= size; i += 4) {
      uint16_t at = 0;
      std::memcpy(&at, data + i, sizeof(at));
      // A small value is one; what is larger, anything.
      const uint32_t value =
          data[i + 2] < 4 ? data[i + 2] : data[i + 2] * 0x01020301u + data[i + 3];
      writes_.emplace_back(at % words, value);
    }
    if (writes_.empty()) return;
    thread_ = std::thread([this, base = static_cast<uint32_t*>(caller.base())] {
      while (!stop_.load(std::memory_order_relaxed)) {
        for (const auto& [at, value] : writes_) {
          std::atomic_ref<uint32_t>(base[at]).store(value, std::memory_order_relaxed);
        }
        std::this_thread::yield();
      }
    });
  }
  ~Scribbler() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> writes_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void RunVictim(World& world) {
  Owner& victim = *world.victim;
  victim.caller->Ring(world.slot);
  Check(victim.caller->Wait(world.slot, absl::Seconds(60)) == GEMMD_ARMED_RAN,
        "another session's run failed");
  Check(victim.caller->Report(world.slot).code == 0, "another session's report is wrong");
  float result = 0;
  Check(victim.session->FindBuffer(victim.d)
            ->buffer->memory()
            .CopyOut(0, {reinterpret_cast<std::byte*>(&result), sizeof(result)})
            .ok(),
        "no copy");
  Check(result == 3 * kSide, "another session's result is wrong");
}

// What else an owner may do, by a byte.
void Act(Owner& owner, uint8_t what, std::vector<int>& armed) {
  switch (what % 8) {
    case 0:
    case 1:
      if (const auto slot = owner.Arm(what % 2 == 0); slot.ok()) armed.push_back(slot->slot);
      break;
    case 2:
      if (!armed.empty()) {
        owner.region->Disarm({armed.back()}).IgnoreError();
        armed.pop_back();
      }
      break;
    case 3:
      owner.region->List();
      break;
    case 4:
      owner.region->Disarm({what, -what}).IgnoreError();
      break;
    case 5:
      if (what > 250) owner.session->DeleteBuffers({&owner.d, 1}).IgnoreError();
      break;
    case 6:
      if (what > 250) owner.session->DeletePlan(owner.plan).IgnoreError();
      break;
    default:
      for (const int slot : armed) owner.caller->Ring(slot);
  }
}

}  // namespace
}  // namespace gemmd::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gemmd::server;            // NOLINT: this is all it does
  static World* const world = new World();  // its threads run to the end of the process
  {
    Owner hostile(*world->state, 5);
    std::vector<int> armed;
    for (int i = 0; i < 4; ++i) armed.push_back(hostile.Arm(i % 2 == 0)->slot);
    Scribbler scribbler(*hostile.caller, data, size);
    RunVictim(*world);
    for (size_t i = 0; i < size && i < 64; ++i) Act(hostile, data[i], armed);
    RunVictim(*world);
  }
  RunVictim(*world);
  const Tenant& tenant = *world->state->tenants().Find("default");
  const absl::Time end = absl::Now() + absl::Seconds(60);
  // What the hostile session had under way ends by itself.
  while (tenant.usage().sessions != 1 || tenant.usage().buffer_bytes != 3 * kBytes) {
    Check(absl::Now() < end, "the session left something behind");
    absl::SleepFor(absl::Microseconds(100));
  }
  return 0;
}
