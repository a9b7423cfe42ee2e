#include "client/cpp/run_ops.h"

#include <utility>

#include "client/cpp/program.h"
#include "client/cpp/session_core.h"
#include "client/cpp/shared_run.h"

namespace gemmd::client {
namespace {

absl::StatusOr<SharedRun> Share(const SessionCore& session, const OpList& ops,
                                const ExecuteOptions& options) {
  const absl::StatusOr<int64_t> bytes = BlockBytes(ops, options);
  if (!bytes.ok()) return bytes.status();
  auto block = session.inline_memory().Take(*bytes, options.call);
  if (!block.ok()) return block.status();
  WriteInputs(ops, /*inputs=*/{}, **block);
  return SharedRun{
      .block = *block,
      .program = ExecuteProgram(session, MovedInto(ops, **block), options, OutputsIn(ops, *block)),
  };
}

}  // namespace

absl::StatusOr<Result> RunOps(const SessionCore& session, const OpList& ops,
                              const ExecuteOptions& options) {
  const auto in_messages = [&] { return ExecuteProgram(session, ops, options); };
  if (!MayShare(ops, options)) return Run(session, in_messages(), options.call);
  return RunEither(session, Share(session, ops, options), in_messages, options);
}

void RunOpsAsync(std::shared_ptr<SessionCore> session, const OpList& ops,
                 const ExecuteOptions& options, ExecuteCallback done) {
  if (!MayShare(ops, options)) {
    return RunAsync(session, ExecuteProgram(*session, ops, options), options.call, std::move(done));
  }
  // The session outlives its runs.
  const auto in_messages = [&core = *session, ops, options] {
    return ExecuteProgram(core, ops, options);
  };
  RunEitherAsync(session, Share(*session, ops, options), in_messages, options, std::move(done));
}

}  // namespace gemmd::client
