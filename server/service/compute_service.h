// ComputeService on the wire: Execute, Queue, plans, Explain.

#ifndef GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_
#define GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_

#include "gemmd/v1/compute_service.grpc.pb.h"
#include "server/service/call.h"
#include "server/service/request_pool.h"
#include "server/service/streams.h"

namespace gemmd::server {

// The two that carry matrices, if small ones, as raw callbacks: their replies are made by hand
// (reply.h).
using ComputeServiceBase = v1::ComputeService::WithRawCallbackMethod_Execute<
    v1::ComputeService::WithRawCallbackMethod_RunPlan<v1::ComputeService::WithCallbackMethod_Queue<
        v1::ComputeService::WithCallbackMethod_CreatePlan<
            v1::ComputeService::WithCallbackMethod_DeletePlan<
                v1::ComputeService::WithCallbackMethod_Explain<v1::ComputeService::Service>>>>>>;

class ComputeService final : public ComputeServiceBase {
 public:
  ComputeService(ServiceContext& context, StreamRegistry& streams);

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<v1::QueueRequest, v1::QueueResponse>* Queue(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* CreatePlan(grpc::CallbackServerContext* context,
                                       const v1::CreatePlanRequest* request,
                                       v1::Plan* response) override;
  grpc::ServerUnaryReactor* RunPlan(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DeletePlan(grpc::CallbackServerContext* context,
                                       const v1::DeletePlanRequest* request,
                                       v1::DeletePlanResponse* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;

 private:
  StreamRegistry& streams_;
  RequestPool<v1::ExecuteRequest> execute_requests_;
  RequestPool<v1::RunPlanRequest> run_plan_requests_;
  Method execute_, queue_, create_plan_, run_plan_, delete_plan_, explain_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_COMPUTE_SERVICE_H_
