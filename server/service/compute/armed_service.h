// ArmedService on the wire: a session's region of armed plans, arming, disarming, listing.

#ifndef GEMMD_SERVER_SERVICE_COMPUTE_ARMED_SERVICE_H_
#define GEMMD_SERVER_SERVICE_COMPUTE_ARMED_SERVICE_H_

#include "gemmd/v1/armed_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/rpcs.h"

namespace gemmd::server {

class ArmedService {
 public:
  explicit ArmedService(ServiceContext& context);
  grpc::Service& wire() { return rpcs_; }

 private:
  absl::Status GetArmedRegion(Call& call, const v1::GetArmedRegionRequest& request,
                              v1::ArmedRegion* response);
  absl::Status ArmPlan(Call& call, const v1::ArmPlanRequest& request, v1::ArmedPlan* response);
  absl::Status DisarmPlan(Call& call, const v1::DisarmPlanRequest& request,
                          v1::DisarmPlanResponse* response);
  absl::Status ListArmed(Call& call, const v1::ListArmedRequest& request,
                         v1::ListArmedResponse* response);

  Method region_, arm_, disarm_, list_;
  Rpcs<v1::ArmedService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_COMPUTE_ARMED_SERVICE_H_
