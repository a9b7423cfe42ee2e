#include "client/cli/trace/chrome_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/args/printable.h"

namespace gemmd::cli {
namespace {

constexpr int kFirstTenantPid = 1000;
constexpr absl::string_view kDeviceRow = "device";
constexpr absl::string_view kLaunchRow = "launch";

std::string Dump(const Json& json) {
  return PrintableJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Nanoseconds as microseconds, exactly: 12345 is 12.345.
void AppendMicros(std::string& text, int64_t ns) {
  absl::StrAppend(&text, ns / 1000, ".", absl::Dec(ns % 1000, absl::kZeroPad3));
}

std::string Program(uint64_t program, absl::string_view flow) {
  return absl::StrCat(",\"args\":{\"program\":", program, "},\"bind_id\":\"", program, "\"", flow);
}

}  // namespace

ChromeTrace::ChromeTrace(std::string& text) : text_(text) {
  text_.append("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
}

void ChromeTrace::Add(const v1::TraceEvent& event) {
  Slice slice = {.begin_ns = std::max<int64_t>(event.begin_ns(), 0),
                 .end_ns = std::max<int64_t>(event.begin_ns() + event.duration_ns(), 0),
                 .name = event.name()};
  switch (event.kind()) {
    case v1::TraceEvent::KIND_QUEUE:
      slice.name = "wait";
      slice.category = "queue";
      slice.more = Program(event.program(), ",\"flow_out\":true");
      Place(Device(event.device()), absl::StrCat("queue ", event.tenant()), slice);
      return;
    case v1::TraceEvent::KIND_LAUNCH:
      slice.name = slice.category = "launch";
      slice.more = Program(event.program(), ",\"flow_in\":true,\"flow_out\":true");
      Place(Device(event.device()), kLaunchRow, slice);
      return;
    case v1::TraceEvent::KIND_DEVICE:
      slice.name = event.tenant();
      slice.category = "device";
      slice.more = Program(event.program(), ",\"flow_in\":true");
      return AddProgram(Device(event.device()), std::move(slice), event.program());
    case v1::TraceEvent::KIND_OP:
      slice.category = event.estimated() ? "op,estimated" : "op";
      slice.more = absl::StrCat(",\"args\":{\"program\":", event.program(),
                                event.estimated() ? ",\"estimated\":true}" : "}");
      return AddOp(Device(event.device()), std::move(slice), event.program());
    case v1::TraceEvent::KIND_TRANSFER:
      slice.category = "transfer";
      slice.more = absl::StrCat(",\"args\":{\"bytes\":", event.bytes(),
                                ",\"device\":", Quoted(event.device()), "}");
      Place(Tenant(event.tenant()), "transfers", slice);
      return;
    case v1::TraceEvent::KIND_CALL:
      slice.category = "call";
      if (!event.trace_id().empty()) {
        slice.more = absl::StrCat(",\"args\":{\"trace_id\":", Dump(event.trace_id()), "}");
      }
      Place(Tenant(event.tenant()), "calls", slice);
      return;
    default:  // of a later server
      return;
  }
}

void ChromeTrace::AddProgram(Process& device, Slice slice, uint64_t program) {
  // A device runs one program after another, but the host sees one's end a few microseconds late
  // and takes the next one's beginning from its own end: that is drawn from where it is free.
  const int64_t free_ns = GroupOf(device, kDeviceRow).rows.first_row_end_ns();
  if (slice.begin_ns < free_ns && slice.end_ns > free_ns) slice.begin_ns = free_ns;
  device.program = program;
  device.begin_ns = slice.begin_ns;
  device.end_ns = slice.end_ns;
  device.tid = Place(device, kDeviceRow, slice);
}

void ChromeTrace::AddOp(Process& device, Slice slice, uint64_t program) {
  if (program != device.program || device.tid == 0) {  // its program's own event was dropped
    Place(device, kDeviceRow, slice);
    return;
  }
  slice.begin_ns = std::clamp(slice.begin_ns, device.begin_ns, device.end_ns);
  slice.end_ns = std::clamp(slice.end_ns, slice.begin_ns, device.end_ns);
  Write(device, device.tid, slice);
}

ChromeTrace::Process& ChromeTrace::Device(absl::string_view name) {
  return ProcessOf(devices_, name, name, 1);
}

ChromeTrace::Process& ChromeTrace::Tenant(absl::string_view name) {
  const auto known = tenants_.find(name);
  if (known != tenants_.end()) return known->second;
  return ProcessOf(tenants_, name, name.empty() ? "no tenant" : absl::StrCat("tenant ", name),
                   kFirstTenantPid);
}

ChromeTrace::Process& ChromeTrace::ProcessOf(std::map<std::string, Process, std::less<>>& processes,
                                             absl::string_view name, absl::string_view title,
                                             int first_pid) {
  const auto known = processes.find(name);
  if (known != processes.end()) return known->second;
  Process& process = processes[std::string(name)];
  process.pid = first_pid + static_cast<int>(processes.size()) - 1;
  WriteMetadata("process_name", process.pid, 0, {{"name", title}});
  WriteMetadata("process_sort_index", process.pid, 0, {{"sort_index", process.pid}});
  return process;
}

ChromeTrace::Group& ChromeTrace::GroupOf(Process& process, absl::string_view name) {
  const auto known = process.groups.find(name);
  if (known != process.groups.end()) return known->second;
  // What runs on top, then launches, then the rest as they come.
  const int rank = name == kDeviceRow   ? 0
                   : name == kLaunchRow ? 1
                                        : static_cast<int>(process.groups.size()) + 2;
  return process.groups.try_emplace(std::string(name), std::string(name), rank).first->second;
}

int ChromeTrace::Place(Process& process, absl::string_view name, const Slice& slice) {
  Group& group = GroupOf(process, name);
  const int row = group.rows.Place(slice.begin_ns, slice.end_ns);
  if (row < 0) {
    WriteAsync(process, slice);
    return 0;
  }
  if (row == static_cast<int>(group.tids.size())) {
    const int tid = next_tid_++;
    group.tids.push_back(tid);
    WriteMetadata("thread_name", process.pid, tid,
                  {{"name", row == 0 ? group.name : absl::StrCat(group.name, " ", row + 1)}});
    WriteMetadata("thread_sort_index", process.pid, tid,
                  {{"sort_index", group.rank * kMostRows + row}});
  }
  Write(process, group.tids[row], slice);
  return group.tids[row];
}

void ChromeTrace::BeginEvent(absl::string_view phase, int pid, int tid) {
  absl::StrAppend(&text_, first_ ? "\n" : ",\n", "{\"ph\":\"", phase, "\",\"pid\":", pid,
                  ",\"tid\":", tid);
  first_ = false;
}

void ChromeTrace::Write(const Process& process, int tid, const Slice& slice) {
  BeginEvent("X", process.pid, tid);
  text_.append(",\"ts\":");
  AppendMicros(text_, slice.begin_ns);
  text_.append(",\"dur\":");
  AppendMicros(text_, slice.end_ns - slice.begin_ns);
  absl::StrAppend(&text_, ",\"name\":", Quoted(slice.name), ",\"cat\":\"", slice.category, "\"",
                  slice.more, "}");
}

void ChromeTrace::WriteAsync(const Process& process, const Slice& slice) {
  const uint64_t id = next_async_++;
  for (const bool begins : {true, false}) {
    BeginEvent(begins ? "b" : "e", process.pid, 0);
    text_.append(",\"ts\":");
    AppendMicros(text_, begins ? slice.begin_ns : slice.end_ns);
    absl::StrAppend(&text_, ",\"name\":", Quoted(slice.name), ",\"cat\":\"", slice.category,
                    "\",\"id\":\"", id, "\"", begins ? slice.more : "", "}");
  }
}

void ChromeTrace::WriteMetadata(absl::string_view kind, int pid, int tid, const Json& args) {
  BeginEvent("M", pid, tid);
  absl::StrAppend(&text_, ",\"name\":\"", kind, "\",\"args\":", Dump(args), "}");
}

void ChromeTrace::Close(const Json& about) {
  absl::StrAppend(&text_, "\n],\"otherData\":", Dump(about), "}\n");
}

const std::string& ChromeTrace::Quoted(absl::string_view text) {
  const auto known = quoted_.find(text);
  if (known != quoted_.end()) return known->second;
  return quoted_.emplace(std::string(text), Dump(std::string(text))).first->second;
}

}  // namespace gemmd::cli
