// ComputeService on the wire: Execute, Queue, plans, Explain.

#ifndef GEMMD_SERVER_SERVICE_COMPUTE_COMPUTE_SERVICE_H_
#define GEMMD_SERVER_SERVICE_COMPUTE_COMPUTE_SERVICE_H_

#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/service/compute/execute.h"
#include "server/service/wire/call.h"
#include "server/service/wire/request_pool.h"
#include "server/service/wire/rpcs.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

class ComputeService {
 public:
  ComputeService(ServiceContext& context, StreamRegistry& streams);
  grpc::Service& wire() { return rpcs_; }

 private:
  // The two that carry matrices, if small ones, make their replies by hand (reply.h).
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer& request, grpc::ByteBuffer* response);
  grpc::ServerUnaryReactor* RunPlan(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer& request, grpc::ByteBuffer* response);
  absl::Status SubmitOps(const grpc::ByteBuffer& request, ExecuteCall::Submit submit);
  absl::Status SubmitPlan(const grpc::ByteBuffer& request, ExecuteCall::Submit submit);

  absl::Status CreatePlan(Call& call, const v1::CreatePlanRequest& request, v1::Plan* response);
  absl::Status DeletePlan(Call& call, const v1::DeletePlanRequest& request,
                          v1::DeletePlanResponse* response);
  absl::Status Explain(Call& call, const v1::ExplainRequest& request,
                       v1::ExplainResponse* response);

  StreamRegistry& streams_;
  RequestPool<v1::ExecuteRequest> execute_requests_;
  RequestPool<v1::RunPlanRequest> run_plan_requests_;
  Method execute_, queue_, create_plan_, run_plan_, delete_plan_, explain_;
  Rpcs<v1::ComputeService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_COMPUTE_COMPUTE_SERVICE_H_
