// Small work on one device, and work that goes on while something else happens.

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {

// A session on one device, and one row to multiply there.
struct Seat {
  Seat(client::Client& client, const std::string& device)
      : session(Must(client.OpenSession({.device = device}))),
        a(MakeBuffer(session, {1, 16})),
        b(MakeBuffer(session, {16, 16})),
        d(MakeBuffer(session, {1, 16})) {}

  absl::Status Multiply(const std::string& kernel = "") {
    client::OpList ops;
    ops.Add(client::Fill{a.tensor(), 1}).Add(client::Fill{b.tensor(), 2});
    ops.Add(client::Matmul{.a = a.tensor(), .b = b.tensor(), .d = d.tensor(), .kernel = kernel});
    ops.Add(client::Read{d.tensor()});
    const absl::StatusOr<client::Result> result = session.Execute(ops);
    if (!result.ok()) return result.status();
    EXPECT_THAT(FloatsOf(*result), testing::Each(32.0f));
    return absl::OkStatus();
  }

  client::Session session;
  client::Buffer a, b, d;
};

// Calls `work` again and again on a thread of its own, until it goes; a call that fails fails the
// test.
class Throughout {
 public:
  explicit Throughout(std::function<absl::Status()> work)
      : thread_([this, work = std::move(work)] {
          while (!stop_) {
            const absl::Status status = work();
            EXPECT_TRUE(status.ok()) << status;
            ++calls_;
          }
        }) {}
  ~Throughout() {
    stop_ = true;
    thread_.join();
  }

  // So that some of them begin now or later.
  void AwaitMore(int calls) {
    EXPECT_TRUE(WaitUntil([this, until = calls_ + calls] { return calls_ > until; }));
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::thread thread_;
};

}  // namespace gemmd::e2e
