// base.h, and what those include who speak gRPC.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include "cmake/precompiled/base.h"
