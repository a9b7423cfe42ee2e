// Several servers that can do the same work, as one that does not go away: each gets a session that
// is prepared alike, calls go to one that is up, and a call whose server leaves is made again on
// another. A rolling restart behind it fails nothing.
//
//   struct Layer { Buffer x, w, y; };
//   auto layers = Replicas<Layer>::Open({"gemm-0:8470", "gemm-1:8470"}, MakeLayer);  // uploads w
//   absl::StatusOr<Result> y = layers->Run([&](Session& session, Layer& layer) {
//     OpList ops;
//     ops.Add(Write{layer.x.tensor(), bytes}).Add(Matmul{...}).Add(Read{layer.y.tensor()});
//     return session.Execute(ops);
//   });
//
// What this asks for: the work must do the same on every server, so it brings what it needs or
// finds it prepared; what earlier calls left in a server's buffers goes with that server.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/internal/connect/replica_pool.h"
#include "client/cpp/options.h"
#include "client/cpp/session.h"

namespace gemmd::client {

// Move-only, thread-safe. Run must have returned everywhere before it is destroyed, which waits
// for what is being prepared.
template <typename State>
class Replicas {
 public:
  // Makes what the work needs on a fresh session: buffers, uploads, plans. Called on a thread of
  // each replica's own whenever its server is there anew, so possibly for two replicas at once.
  using Prepare = std::function<absl::StatusOr<State>(Session&)>;

  // `targets`: as Client::Connect's. A name of DNS with several addresses is as many replicas, and
  // is looked up again and again. Returns when the first of them is prepared; with its error when
  // none can be (options, Prepare), or UNAVAILABLE after options.patience.
  static absl::StatusOr<Replicas> Open(const std::vector<std::string>& targets, Prepare prepare,
                                       const ReplicaOptions& options = {}) {
    absl::StatusOr<std::shared_ptr<ReplicaPool>> pool = ReplicaPool::Open(
        targets,
        [prepare = std::move(prepare)](Session& session) -> absl::StatusOr<std::shared_ptr<void>> {
          absl::StatusOr<State> state = prepare(session);
          if (!state.ok()) return state.status();
          return std::shared_ptr<void>(std::make_shared<State>(*std::move(state)));
        },
        options);
    if (!pool.ok()) return pool.status();
    return Replicas(*std::move(pool));
  }

  // `work(session, state)` returns a Status or a StatusOr, and is called again, on another replica
  // or on the same one restarted, for as long as MeansElsewhere(its status). Several threads may
  // work on one State at once. UNAVAILABLE when no replica takes it within options.patience, or
  // before `deadline`; calls that the work makes have deadlines of their own (CallOptions).
  template <typename Work>
  auto Run(Work&& work, absl::Time deadline = absl::InfiniteFuture())
      -> std::invoke_result_t<Work&, Session&, State&> {
    ReplicaPool::Turn turn(*pool_, deadline);
    for (;;) {
      if (absl::Status found = turn.Find(); !found.ok()) return found;
      auto answer = work(turn.session(), *static_cast<State*>(turn.state()));
      if (!turn.MovesOn(StatusOf(answer))) return answer;
    }
  }

  // How many are prepared and take work now; none in a forked child.
  int serving() const { return pool_->serving(); }

 private:
  explicit Replicas(std::shared_ptr<ReplicaPool> pool) : pool_(std::move(pool)) {}

  static const absl::Status& StatusOf(const absl::Status& status) { return status; }
  template <typename T>
  static const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
    return value.status();
  }

  std::shared_ptr<ReplicaPool> pool_;  // by this alone
};

}  // namespace gemmd::client
