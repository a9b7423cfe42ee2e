#include "server/service/wire/report.h"

#include <bit>
#include <string_view>
#include <vector>

#include "gemmd/v1/wire.h"
#include "server/service/wire/convert.h"

namespace gemmd::server {
namespace {

using wire::kBytes;
using wire::kFixed64;
using wire::kVarint;
using wire::Tag;

using google::protobuf::io::CodedOutputStream;
using v1::OpReport;

// One op's, as the wire has it. All tags take a byte.
struct OpFacts {
  std::string_view op, kernel;
  v1::ChoiceReason reason;
  double device_seconds, flops, bytes;
  std::string_view device;
};

std::vector<OpFacts> FactsOf(const Outcome& outcome, v1::ReportLevel level) {
  std::vector<OpFacts> facts;
  if (level != v1::REPORT_LEVEL_FULL || outcome.program == nullptr) return facts;
  const auto steps = outcome.program->steps();
  const auto& seconds = outcome.result.launch.op_seconds;
  facts.reserve(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const kernels::Program::Step& step = steps[i];
    const std::string_view name = outcome.op_names != nullptr ? (*outcome.op_names)[i] : step.op;
    facts.push_back({name, step.choice.kernel, ToProto(step.choice.reason),
                     i < seconds.size() ? seconds[i] : 0.0, step.flops, step.bytes,
                     outcome.op_devices.empty() ? std::string_view()
                                                : std::string_view(outcome.op_devices[i])});
  }
  return facts;
}

void FillSummary(const Outcome& outcome, v1::ProgramReport* report) {
  report->set_device(outcome.device);
  report->set_queue_seconds(outcome.result.queue_seconds);
  report->set_device_seconds(outcome.result.launch.device_seconds);
}

// proto3 leaves out what is empty or 0, and so do these.
size_t SizeOf(std::string_view text) {
  return text.empty() ? 0
                      : 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(text.size())) +
                            text.size();
}
size_t SizeOf(double value) { return std::bit_cast<uint64_t>(value) == 0 ? 0 : 9; }
size_t SizeOf(v1::ChoiceReason reason) {
  return reason == 0 ? 0 : 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(reason));
}
size_t SizeOf(const OpFacts& op) {
  return SizeOf(op.op) + SizeOf(op.kernel) + SizeOf(op.reason) + SizeOf(op.device_seconds) +
         SizeOf(op.flops) + SizeOf(op.bytes) + SizeOf(op.device);
}

void Write(int field, std::string_view text, CodedOutputStream& out) {
  if (text.empty()) return;
  out.WriteTag(Tag(field, kBytes));
  out.WriteVarint32(static_cast<uint32_t>(text.size()));
  out.WriteRaw(text.data(), static_cast<int>(text.size()));
}
void Write(int field, double value, CodedOutputStream& out) {
  if (SizeOf(value) == 0) return;
  out.WriteTag(Tag(field, kFixed64));
  out.WriteLittleEndian64(std::bit_cast<uint64_t>(value));
}
void Write(int field, v1::ChoiceReason reason, CodedOutputStream& out) {
  if (reason == 0) return;
  out.WriteTag(Tag(field, kVarint));
  out.WriteVarint32(static_cast<uint32_t>(reason));
}
void Write(const OpFacts& op, CodedOutputStream& out) {
  Write(OpReport::kOpFieldNumber, op.op, out);
  Write(OpReport::kKernelFieldNumber, op.kernel, out);
  Write(OpReport::kReasonFieldNumber, op.reason, out);
  Write(OpReport::kDeviceSecondsFieldNumber, op.device_seconds, out);
  Write(OpReport::kFlopsFieldNumber, op.flops, out);
  Write(OpReport::kBytesFieldNumber, op.bytes, out);
  Write(OpReport::kDeviceFieldNumber, op.device, out);
}

}  // namespace

void FillReport(const Outcome& outcome, v1::ReportLevel level, v1::ProgramReport* report) {
  FillSummary(outcome, report);
  for (const OpFacts& facts : FactsOf(outcome, level)) {
    OpReport& op = *report->add_ops();
    op.set_op(facts.op.data(), facts.op.size());
    op.set_kernel(facts.kernel.data(), facts.kernel.size());
    op.set_reason(facts.reason);
    op.set_device_seconds(facts.device_seconds);
    op.set_flops(facts.flops);
    op.set_bytes(facts.bytes);
    op.set_device(facts.device.data(), facts.device.size());
  }
}

void WriteReport(const Outcome& outcome, v1::ReportLevel level, int field, CodedOutputStream& out) {
  v1::ProgramReport summary;
  FillSummary(outcome, &summary);
  const std::vector<OpFacts> ops = FactsOf(outcome, level);
  size_t size = summary.ByteSizeLong();
  for (const OpFacts& op : ops) {
    const size_t bytes = SizeOf(op);
    size += 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) + bytes;
  }
  out.WriteTag(Tag(field, kBytes));
  out.WriteVarint32(static_cast<uint32_t>(size));
  summary.SerializeWithCachedSizes(&out);
  for (const OpFacts& op : ops) {
    out.WriteTag(Tag(v1::ProgramReport::kOpsFieldNumber, kBytes));
    out.WriteVarint32(static_cast<uint32_t>(SizeOf(op)));
    Write(op, out);
  }
}

}  // namespace gemmd::server
