// ChromeTrace: a server's trace in the Trace Event Format, which Perfetto and chrome://tracing
// read.
//
//   std::string text;
//   ChromeTrace trace(text);
//   trace.Add(event);  // any number; write out and clear `text` at any time between
//   trace.Close({{"dropped", 0}});
//
// A device is a process with rows for what runs on it, for launches, and for each tenant's waits;
// a tenant is one with rows for its calls and its transfers. A program's wait, launch and run are
// joined by a flow. Times are microseconds since the trace began; what began before is drawn from
// there on.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/args/output.h"
#include "client/cli/trace/rows.h"
#include "gemmd/v1/admin_service.pb.h"

namespace gemmd::cli {

class ChromeTrace {
 public:
  // Slices of one kind that overlap: as many have rows of their own, further ones are async.
  static constexpr int kMostRows = 16;

  // Appends to `text`, which outlives it.
  explicit ChromeTrace(std::string& text);

  // A process that is there even if nothing happens on it.
  void AddDevice(absl::string_view name) { Device(name); }
  void Add(const v1::TraceEvent& event);
  // The end of the document. `about` is what the file says of itself.
  void Close(const Json& about);

 private:
  struct Slice {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    absl::string_view name;
    absl::string_view category;
    std::string more;  // further members, each after a comma
  };
  struct Group {  // rows of one kind
    Group(std::string name, int rank) : name(std::move(name)), rank(rank), rows(kMostRows) {}
    const std::string name;
    const int rank;  // among the process' groups
    Rows rows;
    std::vector<int> tids;  // by row
  };
  struct Process {
    int pid = 0;
    std::map<std::string, Group, std::less<>> groups;
    // What was drawn last of the device's programs: its ops go into it.
    uint64_t program = 0;
    int tid = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  Process& Device(absl::string_view name);
  Process& Tenant(absl::string_view name);
  Process& ProcessOf(std::map<std::string, Process, std::less<>>& processes, absl::string_view name,
                     absl::string_view title, int first_pid);
  Group& GroupOf(Process& process, absl::string_view name);
  void AddProgram(Process& device, Slice slice, uint64_t program);
  void AddOp(Process& device, Slice slice, uint64_t program);
  // In a row of its group where it overlaps nothing, or as an async slice. The row's tid, or 0.
  int Place(Process& process, absl::string_view group, const Slice& slice);
  void Write(const Process& process, int tid, const Slice& slice);
  void WriteAsync(const Process& process, const Slice& slice);
  void WriteMetadata(absl::string_view kind, int pid, int tid, const Json& args);
  void BeginEvent(absl::string_view phase, int pid, int tid);
  // As a JSON string, quotes included.
  const std::string& Quoted(absl::string_view text);

  std::string& text_;
  bool first_ = true;
  int next_tid_ = 1;  // no two processes share one
  uint64_t next_async_ = 1;
  std::map<std::string, Process, std::less<>> devices_;
  std::map<std::string, Process, std::less<>> tenants_;
  std::map<std::string, std::string, std::less<>> quoted_;  // names recur
};

}  // namespace gemmd::cli
