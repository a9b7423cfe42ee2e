#include "tests/fuzz/proto_mutator.h"

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace gemmd::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;
using Random = std::minstd_rand;

// Parse errors are the fuzzer's daily bread; they do not belong on stderr.
class Silence final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

int Pick(Random& random, int count) { return static_cast<int>(random() % count); }

// Around the limits that validation has: element and block sizes, int32 and int64 ends, MiB.
int64_t InterestingInteger(Random& random) {
  static constexpr int64_t kValues[] = {0,
                                        1,
                                        2,
                                        3,
                                        4,
                                        7,
                                        8,
                                        15,
                                        16,
                                        17,
                                        63,
                                        64,
                                        65,
                                        127,
                                        128,
                                        129,
                                        130,
                                        255,
                                        256,
                                        257,
                                        1000,
                                        1023,
                                        1024,
                                        4095,
                                        4096,
                                        4097,
                                        65535,
                                        65536,
                                        1 << 20,
                                        4 << 20,
                                        1 << 30,
                                        -1,
                                        -2,
                                        -128,
                                        -4096,
                                        1LL << 31,
                                        (1LL << 31) - 1,
                                        1LL << 32,
                                        1LL << 33,
                                        1LL << 40,
                                        1LL << 61,
                                        1LL << 62,
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::max() - 1,
                                        std::numeric_limits<int64_t>::min()};
  return kValues[Pick(random, static_cast<int>(std::size(kValues)))];
}

double InterestingDouble(Random& random) {
  static constexpr double kValues[] = {0,    -0.0, 1,     -1,     0.5,   448,   449,  1e-45,
                                       3e38, 1e39, 1e308, -1e308, 65504, 65520, 0.01, 100};
  const int i = Pick(random, static_cast<int>(std::size(kValues)) + 3);
  if (i == 16) return std::numeric_limits<double>::quiet_NaN();
  if (i == 17) return std::numeric_limits<double>::infinity();
  if (i == 18) return -std::numeric_limits<double>::infinity();
  return kValues[i];
}

int64_t NewInteger(Random& random, int64_t old) {
  switch (Pick(random, 4)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + random() % 9 - 4);
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(old) * 2);
    default:
      return InterestingInteger(random);
  }
}

// Short ids stand for handles that the target has (see bind.h); long runs are data.
std::string NewString(Random& random, const FieldDescriptor& field, const std::string& old) {
  switch (Pick(random, 5)) {
    case 0:
      return "";
    case 1:
      return std::string(1, static_cast<char>('0' + Pick(random, 10)));
    case 2: {
      std::string longer = old + old + "x";
      if (longer.size() > 4096) longer.resize(4096);
      return longer;
    }
    case 3: {
      std::string shorter = old;
      if (!shorter.empty()) shorter.resize(Pick(random, static_cast<int>(shorter.size())));
      return shorter;
    }
    default: {
      std::string noise = old.empty() ? std::string(1 + Pick(random, 64), 'a') : old;
      // A proto3 string must be UTF-8: printable only.
      const bool bytes = field.type() == FieldDescriptor::TYPE_BYTES;
      noise[Pick(random, static_cast<int>(noise.size()))] =
          static_cast<char>(bytes ? Pick(random, 256) : 32 + Pick(random, 95));
      return noise;
    }
  }
}

// Gives one scalar of `field` a new value: entry `index` when it is repeated, appended at -1.
void SetScalar(Random& random, Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = field.is_repeated();
  const bool fresh = repeated && index < 0;
#define GEMMD_SET(Kind, Old, New)                                             \
  {                                                                           \
    const auto old = fresh      ? decltype(r.Get##Kind(message, &field)){}    \
                     : repeated ? r.GetRepeated##Kind(message, &field, index) \
                                : r.Get##Kind(message, &field);               \
    const auto value = New;                                                   \
    (void)old;                                                                \
    if (fresh) {                                                              \
      r.Add##Kind(&message, &field, value);                                   \
    } else if (repeated) {                                                    \
      r.SetRepeated##Kind(&message, &field, index, value);                    \
    } else {                                                                  \
      r.Set##Kind(&message, &field, value);                                   \
    }                                                                         \
    return;                                                                   \
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      GEMMD_SET(Int32, old, static_cast<int32_t>(NewInteger(random, old)))
    case FieldDescriptor::CPPTYPE_INT64:
      GEMMD_SET(Int64, old, NewInteger(random, old))
    case FieldDescriptor::CPPTYPE_UINT32:
      GEMMD_SET(UInt32, old, static_cast<uint32_t>(NewInteger(random, old)))
    case FieldDescriptor::CPPTYPE_UINT64:
      GEMMD_SET(UInt64, old, static_cast<uint64_t>(NewInteger(random, old)))
    case FieldDescriptor::CPPTYPE_FLOAT:
      GEMMD_SET(Float, old, static_cast<float>(InterestingDouble(random)))
    case FieldDescriptor::CPPTYPE_DOUBLE:
      GEMMD_SET(Double, old, InterestingDouble(random))
    case FieldDescriptor::CPPTYPE_BOOL:
      GEMMD_SET(Bool, old, Pick(random, 2) == 1)
    case FieldDescriptor::CPPTYPE_ENUM:
      // Up to one past the last name: proto3 keeps unknown numbers.
      GEMMD_SET(EnumValue, old, Pick(random, field.enum_type()->value_count() + 1))
    case FieldDescriptor::CPPTYPE_STRING:
      GEMMD_SET(String, old, NewString(random, field, old))
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
#undef GEMMD_SET
}

struct Place {
  Message* message;
  const FieldDescriptor* field;
};

// Every field of every message in the tree, set or not.
void Collect(Message& message, std::vector<Place>& places) {
  const Reflection& r = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    places.push_back({&message, field});
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_repeated()) {
      for (int j = 0; j < r.FieldSize(message, field); ++j) {
        Collect(*r.MutableRepeatedMessage(&message, field, j), places);
      }
    } else if (r.HasField(message, field)) {
      Collect(*r.MutableMessage(&message, field), places);
    }
  }
}

void ChangeRepeated(Random& random, const Place& place) {
  const Reflection& r = *place.message->GetReflection();
  const int size = r.FieldSize(*place.message, place.field);
  const bool of_messages = place.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const int what = Pick(random, 4);
  if (what == 0 && size > 0) {
    r.RemoveLast(place.message, place.field);
  } else if (what == 1 && size > 1) {
    r.SwapElements(place.message, place.field, Pick(random, size), Pick(random, size));
  } else if (what == 2 && size > 0 && !of_messages) {
    SetScalar(random, *place.message, *place.field, Pick(random, size));
  } else if (size < 64) {
    if (!of_messages) return SetScalar(random, *place.message, *place.field, -1);
    Message* added = r.AddMessage(place.message, place.field);
    if (size > 0) {
      added->CopyFrom(r.GetRepeatedMessage(*place.message, place.field, Pick(random, size)));
    }
  }
}

void Change(Random& random, const Place& place) {
  const Reflection& r = *place.message->GetReflection();
  if (place.field->is_repeated()) return ChangeRepeated(random, place);
  if (place.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return SetScalar(random, *place.message, *place.field, 0);
  }
  if (!r.HasField(*place.message, place.field)) {
    r.MutableMessage(place.message, place.field);
  } else if (Pick(random, 4) == 0) {
    r.ClearField(place.message, place.field);
  }
}

size_t Print(const Message& message, uint8_t* out, size_t max_size) {
  std::string text;
  TextFormat::PrintToString(message, &text);
  if (text.size() > max_size) return 0;
  std::memcpy(out, text.data(), text.size());
  return text.size();
}

}  // namespace

bool ParseText(const uint8_t* data, size_t size, Message& message) {
  static Silence silence;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&silence);
  parser.SetRecursionLimit(50);
  return parser.ParseFromString(std::string(reinterpret_cast<const char*>(data), size), &message);
}

size_t MutateText(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                  Message& message) {
  Random random(seed + 1);
  ParseText(data, size, message);
  const int changes = 1 + Pick(random, 4);
  for (int i = 0; i < changes; ++i) {
    std::vector<Place> places;
    Collect(message, places);
    Change(random, places[Pick(random, static_cast<int>(places.size()))]);
  }
  const size_t written = Print(message, data, max_size);
  return written > 0 ? written : size;
}

size_t CrossOverText(const uint8_t* one, size_t one_size, const uint8_t* other, size_t other_size,
                     uint8_t* out, size_t max_size, Message& message) {
  ParseText(one, one_size, message);
  const std::unique_ptr<Message> second(message.New());
  ParseText(other, other_size, *second);
  message.MergeFrom(*second);
  return Print(message, out, max_size);
}

}  // namespace gemmd::fuzz
