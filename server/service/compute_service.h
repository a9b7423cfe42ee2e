// ComputeService on the wire: Execute, Queue, plans, Explain.

#ifndef GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_
#define GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_

#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/service/arena_messages.h"
#include "server/service/call.h"
#include "server/service/streams.h"

namespace gemmd::server {

class ComputeService final : public v1::ComputeService::CallbackService {
 public:
  ComputeService(ServiceContext& context, StreamRegistry& streams);

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override;
  grpc::ServerBidiReactor<v1::QueueRequest, v1::QueueResponse>* Queue(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* CreatePlan(grpc::CallbackServerContext* context,
                                       const v1::CreatePlanRequest* request,
                                       v1::Plan* response) override;
  grpc::ServerUnaryReactor* RunPlan(grpc::CallbackServerContext* context,
                                    const v1::RunPlanRequest* request,
                                    v1::ExecuteResponse* response) override;
  grpc::ServerUnaryReactor* DeletePlan(grpc::CallbackServerContext* context,
                                       const v1::DeletePlanRequest* request,
                                       v1::DeletePlanResponse* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;

 private:
  StreamRegistry& streams_;
  ArenaMessages<v1::ExecuteRequest, v1::ExecuteResponse> execute_messages_;
  ArenaMessages<v1::RunPlanRequest, v1::ExecuteResponse> run_plan_messages_;
  Method execute_, queue_, create_plan_, run_plan_, delete_plan_, explain_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_
