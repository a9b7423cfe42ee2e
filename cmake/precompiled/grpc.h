// base.h, and what those include who speak gRPC: its own headers, and the generated ones of proto/.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include "cmake/precompiled/base.h"
#include "gemmd/v1/admin_service.grpc.pb.h"
#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "gemmd/v1/session_service.grpc.pb.h"
#include "gemmd/v1/types.pb.h"
