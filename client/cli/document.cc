#include "client/cli/document.h"

#include <google/protobuf/duration.pb.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace gemmd::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

Json ValueOf(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
    return TimeText(static_cast<const google::protobuf::Timestamp&>(message));
  }
  return DocumentOf(message);
}

// Of a field that is not repeated, or its `index`-th element.
Json ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const google::protobuf::Reflection& in = *message.GetReflection();
  const auto get = [&](auto one, auto of_list) {
    return index < 0 ? (in.*one)(message, &field) : (in.*of_list)(message, &field, index);
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&R::GetInt32, &R::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&R::GetInt64, &R::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&R::GetUInt32, &R::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&R::GetUInt64, &R::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&R::GetFloat, &R::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&R::GetDouble, &R::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&R::GetBool, &R::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(*field.enum_type(), get(&R::GetEnumValue, &R::GetRepeatedEnumValue));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = get(&R::GetString, &R::GetRepeatedString);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ValueOf(index < 0 ? in.GetMessage(message, &field)
                               : in.GetRepeatedMessage(message, &field, index));
  }
  return Json();
}

}  // namespace

Json DocumentOf(const Message& message) {
  const google::protobuf::Reflection& in = *message.GetReflection();
  Json document = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated()) {
      Json& list = document[field.name()] = Json::array();
      for (int k = 0; k < in.FieldSize(message, &field); ++k) {
        list.push_back(ValueOf(message, field, k));
      }
      continue;
    }
    const bool set = !field.has_presence() || in.HasField(message, &field);
    const auto* const type = field.message_type();
    if (type == google::protobuf::Duration::descriptor()) {
      if (!set) continue;
      const auto& time =
          static_cast<const google::protobuf::Duration&>(in.GetMessage(message, &field));
      document[field.name() + "_seconds"] =
          absl::ToDoubleSeconds(absl::Seconds(time.seconds()) + absl::Nanoseconds(time.nanos()));
    } else if (set || type == google::protobuf::Timestamp::descriptor()) {
      document[field.name()] = ValueOf(message, field, -1);
    } else {
      document[field.name()] = nullptr;
    }
  }
  return document;
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

std::string NameOf(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* const value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  std::string common = type.value(0)->name();
  for (int i = 1; i < type.value_count(); ++i) {
    const std::string& name = type.value(i)->name();
    common.resize(std::mismatch(common.begin(), common.end(), name.begin(), name.end()).first -
                  common.begin());
  }
  return absl::AsciiStrToLower(value->name().substr(common.rfind('_') + 1));
}

}  // namespace gemmd::cli
