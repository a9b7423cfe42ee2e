#include "client/armed/copy_kernel.h"

namespace gemmd::armed {

// Each thread takes four chunks a round. Then the cluster meets, which makes all that its threads
// stored the first thread's to hand on: its store of the gate releases it to the whole system.
const char kCopyKernelPtx[] = R"ptx(
.version 8.0
.target sm_90
.address_size 64

.visible .entry gemmd_copy_and_ring(
    .param .u64 to_address, .param .u64 from_address,
    .param .u64 chunk_count, .param .u64 gate_address,
    .param .u64 done_address)
    .explicitcluster .reqnctapercluster 8, 1, 1
    .maxntid 1024, 1, 1
{
  .reg .pred %past;
  .reg .b32 %cta, %threads, %thread, %first, %rung;
  .reg .b32 %a<4>, %b<4>, %c<4>, %d<4>;
  .reg .b64 %to, %from, %count, %gate, %i, %step, %last, %at, %src, %dst, %bytes, %done;

  ld.param.u64 %to, [to_address];
  ld.param.u64 %from, [from_address];
  ld.param.u64 %count, [chunk_count];
  ld.param.u64 %gate, [gate_address];
  ld.param.u64 %done, [done_address];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;
  cvta.to.global.u64 %gate, %gate;
  cvta.to.global.u64 %done, %done;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %first, %cta, %threads, %thread;
  cvt.u64.u32 %i, %first;
  mul.lo.u32 %threads, %threads, 8;
  cvt.u64.u32 %step, %threads;
  shl.b64 %bytes, %step, 4;
  griddepcontrol.wait;
  setp.ne.u32 %past, %first, 0;
  @%past bra FOUR;
  mov.u32 %rung, 0;
  st.relaxed.sys.global.u32 [%done], %rung;

FOUR:
  mad.lo.u64 %last, %step, 3, %i;
  setp.ge.u64 %past, %last, %count;
  @%past bra ONE;
  shl.b64 %at, %i, 4;
  add.u64 %src, %from, %at;
  add.u64 %dst, %to, %at;
  ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%src];
  add.u64 %src, %src, %bytes;
  ld.global.v4.b32 {%b0, %b1, %b2, %b3}, [%src];
  add.u64 %src, %src, %bytes;
  ld.global.v4.b32 {%c0, %c1, %c2, %c3}, [%src];
  add.u64 %src, %src, %bytes;
  ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%src];
  st.global.v4.b32 [%dst], {%a0, %a1, %a2, %a3};
  add.u64 %dst, %dst, %bytes;
  st.global.v4.b32 [%dst], {%b0, %b1, %b2, %b3};
  add.u64 %dst, %dst, %bytes;
  st.global.v4.b32 [%dst], {%c0, %c1, %c2, %c3};
  add.u64 %dst, %dst, %bytes;
  st.global.v4.b32 [%dst], {%d0, %d1, %d2, %d3};
  add.u64 %i, %last, %step;
  bra FOUR;

ONE:
  setp.ge.u64 %past, %i, %count;
  @%past bra COPIED;
  shl.b64 %at, %i, 4;
  add.u64 %src, %from, %at;
  add.u64 %dst, %to, %at;
  ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%src];
  st.global.v4.b32 [%dst], {%a0, %a1, %a2, %a3};
  add.u64 %i, %i, %step;
  bra ONE;

COPIED:
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  setp.ne.u32 %past, %first, 0;
  @%past bra END;
  mov.u32 %rung, 1;
  st.release.sys.global.u32 [%gate], %rung;
END:
  ret;
}

.visible .entry gemmd_ring(
    .param .u64 to_address, .param .u64 from_address,
    .param .u64 chunk_count, .param .u64 gate_address,
    .param .u64 done_address)
    .maxntid 1, 1, 1
{
  .reg .b32 %value;
  .reg .b64 %gate, %done;

  ld.param.u64 %gate, [gate_address];
  ld.param.u64 %done, [done_address];
  cvta.to.global.u64 %gate, %gate;
  cvta.to.global.u64 %done, %done;
  griddepcontrol.wait;
  mov.u32 %value, 0;
  st.relaxed.sys.global.u32 [%done], %value;
  mov.u32 %value, 1;
  st.release.sys.global.u32 [%gate], %value;
  ret;
}
)ptx";

}  // namespace gemmd::armed
