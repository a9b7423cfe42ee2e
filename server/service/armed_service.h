// ArmedService on the wire: a session's region of armed plans, arming, disarming, listing.

#ifndef GEMMD_SERVER_SERVICE_ARMED_SERVICE_H_
#define GEMMD_SERVER_SERVICE_ARMED_SERVICE_H_

#include "gemmd/v1/armed_service.grpc.pb.h"
#include "server/service/call.h"

namespace gemmd::server {

class ArmedService final : public v1::ArmedService::CallbackService {
 public:
  explicit ArmedService(ServiceContext& context);

  grpc::ServerUnaryReactor* GetArmedRegion(grpc::CallbackServerContext* context,
                                           const v1::GetArmedRegionRequest* request,
                                           v1::ArmedRegion* response) override;
  grpc::ServerUnaryReactor* ArmPlan(grpc::CallbackServerContext* context,
                                    const v1::ArmPlanRequest* request,
                                    v1::ArmedPlan* response) override;
  grpc::ServerUnaryReactor* DisarmPlan(grpc::CallbackServerContext* context,
                                       const v1::DisarmPlanRequest* request,
                                       v1::DisarmPlanResponse* response) override;
  grpc::ServerUnaryReactor* ListArmed(grpc::CallbackServerContext* context,
                                      const v1::ListArmedRequest* request,
                                      v1::ListArmedResponse* response) override;

 private:
  Method region_, arm_, disarm_, list_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ARMED_SERVICE_H_
