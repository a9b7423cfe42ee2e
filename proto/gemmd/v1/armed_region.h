// The memory that a session and the daemon share for armed plans: gates, done words and reports.
// The daemon and the C++ client include this file; it is plain C, so that other languages can too.
//
// ArmedService.GetArmedRegion hands over the sealed memfd with the region, and an eventfd that
// wakes the daemon's poller. `slot` below is what ArmPlan answered.
//
//   a run                  who      what
//   1. ring                caller   done: -> 0; behind that gate: 0 -> 1, by stores, or by
//                                   cuStreamWriteValue32 behind the work that wrote the operands
//   2. take                daemon   gate: exchange with 0; the run is queued as any other program
//   3. report              daemon   the slot's report, then its host_done
//   4. done                daemon   done: 0 -> GEMMD_ARMED_RAN, by its stream behind the last
//                                   kernel (GPU; then 3 follows), or by its host behind 3; 0 ->
//                                   GEMMD_ARMED_FAILED by its host behind 3
//   5. wait                caller   waits for done >= 1 (cuStreamWaitValue32 with
//                                   CU_STREAM_WAIT_VALUE_GEQ, or a loop)
//
// Values are fixed and each is taken back by its reader, done at any time before the next ring, so
// that a captured graph holding 1 and 5 can be replayed. A gate that is set again before the run is
// done is taken at once and queued behind it; with eight runs unanswered it stays set.
//
// A host caller that rings does so in this order: store gate = 1; full fence; if poller_sleeps is
// not 0, write 1 to the eventfd. A stream cannot: see ArmPlanRequest.rung_by_stream.
//
// A host caller that sleeps does so in this order: add 1 to waiters; full fence; read host_done; if
// done is 0 and host_done is what it was before the ring, FUTEX_WAIT on host_done; subtract 1. The
// futex is a shared one (no FUTEX_PRIVATE_FLAG). host_done changes just before done does
// where the host sets both.
//
// All words are 32 bits, aligned, and accessed atomically: acquire to read, release to write. The
// daemon reads gates and waiters alone, and believes none of them: whatever a caller
// writes here reaches its own session's slots and nobody else.

#ifndef GEMMD_V1_ARMED_REGION_H_
#define GEMMD_V1_ARMED_REGION_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define GEMMD_ARMED_MAGIC UINT64_C(0x316d7261646d6d67)  // "gmmdarm1", little-endian
#define GEMMD_ARMED_VERSION 1u
#define GEMMD_ARMED_LINE_BYTES 64u
#define GEMMD_ARMED_WORDS_PER_LINE 16u
#define GEMMD_ARMED_MAX_SLOTS 16384u  // a region's slots are a multiple of 16

// Values of a gate.
#define GEMMD_ARMED_IDLE 0u
#define GEMMD_ARMED_RUNG 1u  // any other value fails the run with INVALID_ARGUMENT

// Values of a done word beside 0.
#define GEMMD_ARMED_RAN 1u
#define GEMMD_ARMED_FAILED \
  2u  // the report says why; float outputs hold NaN where they could be written

// Values of gemmd_armed_header.state.
#define GEMMD_ARMED_OPEN 0u
// The session has ended: nobody looks at gates any more. What was rung before is done (FAILED); who
// has rings queued on a stream sets done by itself from now on, until that stream is through.
#define GEMMD_ARMED_ENDED 1u

// Written by the daemon alone.
struct gemmd_armed_header {
  uint64_t magic;
  uint32_t version;
  uint32_t slots;
  uint32_t gates_offset;  // each in bytes, as the functions below give them
  uint32_t args_offset;
  uint32_t done_offset;
  uint32_t reports_offset;
  uint32_t size_bytes;
  uint32_t state;
  uint32_t reserved[6];
  // The second line: changes often.
  uint32_t poller_sleeps;  // not 0: a host that rings writes to the eventfd
  uint32_t reserved_2[15];
};

// In a line of its own. The caller and the daemon write it.
struct gemmd_armed_done {
  uint32_t done;
  uint32_t waiters;  // the caller's threads that sleep, or are about to, on host_done
  uint32_t reserved[14];
};

// Of the slot's last run. Written by the daemon alone. To read it: seq (again while it is odd), the
// fields, seq once more: another value means that they changed meanwhile.
struct gemmd_armed_report {
  uint32_t seq;
  uint32_t host_done;  // runs answered in this slot since the region was made, modulo 2^32
  uint64_t run;        // runs answered since the plan was armed, this one included
  uint64_t device_ns;  // the device's time; 0 when it never ran
  uint64_t queued_ns;  // from the ring's taking to the device's start
  uint64_t taken_ns;   // when the ring was taken, since 1970
  int32_t code;        // google.rpc.Code; 0 is OK
  uint32_t failed;     // runs that failed since the plan was armed, modulo 2^32
  char reason[32];     // as `gemmd-reason`; ends with 0; empty when OK
  char message[48];    // the beginning of the message; ends with 0. ListArmed has all of it.
};

#ifdef __cplusplus
#define GEMMD_ARMED_ASSERT(condition, why) static_assert(condition, why)
#else
#define GEMMD_ARMED_ASSERT(condition, why) _Static_assert(condition, why)
#endif
GEMMD_ARMED_ASSERT(sizeof(struct gemmd_armed_header) == 128, "two lines");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_header, version) == 8, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_header, slots) == 12, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_header, size_bytes) == 32, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_header, state) == 36, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_header, poller_sleeps) == 64, "a line of its own");
GEMMD_ARMED_ASSERT(sizeof(struct gemmd_armed_done) == GEMMD_ARMED_LINE_BYTES, "a line");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_done, waiters) == 4, "layout version 1");
GEMMD_ARMED_ASSERT(sizeof(struct gemmd_armed_report) == 128, "two lines");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, host_done) == 4, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, run) == 8, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, device_ns) == 16, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, queued_ns) == 24, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, taken_ns) == 32, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, code) == 40, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, failed) == 44, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, reason) == 48, "layout version 1");
GEMMD_ARMED_ASSERT(offsetof(struct gemmd_armed_report, message) == 80, "layout version 1");

// Where the parts of a region begin, in bytes; `slots` is a multiple of 16, at most
// GEMMD_ARMED_MAX_SLOTS. A caller uses these with the slots that GetArmedRegion answered, rather
// than the header's offsets.
static inline uint32_t gemmd_armed_gates_offset(uint32_t slots) {
  (void)slots;
  return (uint32_t)sizeof(struct gemmd_armed_header);
}
// One 32-bit argument a slot, the caller's; reserved: leave 0.
static inline uint32_t gemmd_armed_args_offset(uint32_t slots) {
  return gemmd_armed_gates_offset(slots) + slots * 4u;
}
static inline uint32_t gemmd_armed_done_offset(uint32_t slots) {
  return gemmd_armed_args_offset(slots) + slots * 4u;
}
static inline uint32_t gemmd_armed_reports_offset(uint32_t slots) {
  return gemmd_armed_done_offset(slots) + slots * (uint32_t)sizeof(struct gemmd_armed_done);
}
static inline uint32_t gemmd_armed_size_bytes(uint32_t slots) {
  return gemmd_armed_reports_offset(slots) + slots * (uint32_t)sizeof(struct gemmd_armed_report);
}

static inline uint32_t* gemmd_armed_gate(void* region, uint32_t slots, uint32_t slot) {
  return (uint32_t*)((char*)region + gemmd_armed_gates_offset(slots)) + slot;
}
static inline struct gemmd_armed_done* gemmd_armed_done_of(void* region, uint32_t slots,
                                                           uint32_t slot) {
  return (struct gemmd_armed_done*)((char*)region + gemmd_armed_done_offset(slots)) + slot;
}
static inline struct gemmd_armed_report* gemmd_armed_report_of(void* region, uint32_t slots,
                                                               uint32_t slot) {
  return (struct gemmd_armed_report*)((char*)region + gemmd_armed_reports_offset(slots)) + slot;
}

#endif  // GEMMD_V1_ARMED_REGION_H_
