// Messages of the API as --json prints them.

#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>

#include "client/cli/args/output.h"

namespace gemmd::cli {

// The message's fields by the proto's names, those of a newer server included. An enum's value is
// its name in lower case without what all of them begin with, bytes are in hex, and a Duration is
// in seconds, as NAME_seconds, where it is set. A message or an `optional` field that is not set is
// null.
Json DocumentOf(const google::protobuf::Message& message);

// "2026-11-21T04:00:00Z"; "" for the epoch, which is what an unset Timestamp gives.
std::string TimeText(const google::protobuf::Timestamp& time);

// "table" of CHOICE_REASON_TABLE. A number that this program has no name for is a number.
std::string NameOf(const google::protobuf::EnumDescriptor& type, int number);
template <typename Enum>
std::string NameOf(Enum value) {
  return NameOf(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

}  // namespace gemmd::cli
