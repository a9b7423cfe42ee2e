"""The fake's armed plans: a region as gemmd/v1/armed_region.h lays it out, and a poller."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time

import numpy as np

from gemmd.share import SharedArray
from gemmd.v1 import armed_service_pb2 as pb

from .machine import Refused

HEADER_BYTES, DONE_BYTES, REPORT_BYTES = 128, 64, 128
SLOTS = 64
_MAGIC = 0x316D7261646D6D67
_FUTEX_WAKE, _SYS_FUTEX = 1, 202


class Region:
    """Words as the layout names them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.gates_at = HEADER_BYTES
        self.done_at = self.gates_at + 8 * slots
        self.reports_at = self.done_at + DONE_BYTES * slots
        self.size_bytes = self.reports_at + REPORT_BYTES * slots
        self.memory = SharedArray(self.size_bytes, "i8")
        raw = self.memory.array.view(np.uint8)
        self.raw = raw
        self.words = raw.view(np.uint32)
        struct.pack_into("<QII", raw, 0, _MAGIC, 1, slots)
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)

    def gate(self, slot: int) -> int:
        return self.gates_at // 4 + slot

    def done(self, slot: int) -> int:
        return (self.done_at + DONE_BYTES * slot) // 4

    def report(self, slot: int) -> int:
        return self.reports_at + REPORT_BYTES * slot

    def end(self) -> None:
        """The session has ended."""
        self.words[9] = 1  # header.state

    def answer(self, slot: int, device_ns: int, code: int, message: str, reason: str) -> None:
        at = self.report(slot)
        seq, host_done, run = struct.unpack_from("<IIQ", self.raw, at)
        (failed,) = struct.unpack_from("<I", self.raw, at + 44)
        struct.pack_into("<I", self.raw, at, seq + 1)
        struct.pack_into(
            "<QQQQiI32s48s", self.raw, at + 8, run + 1, device_ns, 1000, 0, code,
            failed + (code != 0), reason.encode()[:31], message.encode()[:47],
        )  # fmt: skip
        struct.pack_into("<I", self.raw, at, seq + 2)
        struct.pack_into("<I", self.raw, at + 4, (host_done + 1) & 0xFFFFFFFF)
        self.words[self.done(slot)] = 1 if code == 0 else 2
        address = self.raw.ctypes.data + at + 4
        futex = ctypes.CDLL(None).syscall
        futex(_SYS_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, 1 << 30, 0, 0, 0)


class Arming:
    """Of the fake server: one region for all of its sessions, and the thread that runs slots."""

    def __init__(self, fake) -> None:
        self._fake = fake
        self.region = Region(SLOTS)
        self.armed: dict[int, pb.ArmPlanRequest] = {}
        self.last: dict[int, Refused] = {}  # errors of last runs, whole
        self.stopped = threading.Event()  # a poller that has stopped takes no ring
        self.goes = threading.Event()  # a run waits for it
        self.goes.set()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def get_armed_region(self, _: pb.GetArmedRegionRequest) -> pb.ArmedRegion:
        share, region = self._fake.share, self.region
        return pb.ArmedRegion(
            region_token=share.grant(region.memory.descriptor),
            wake_token=share.grant(region.wake),
            share_socket=share.address,
            size_bytes=region.size_bytes,
            slots=region.slots,
            layout_version=1,
        )

    def arm_plan(self, request: pb.ArmPlanRequest) -> pb.ArmedPlan:
        free = next((slot for slot in range(SLOTS) if slot not in self.armed), None)
        if free is None:
            raise Refused("RESOURCE_EXHAUSTED", f"all {SLOTS} slots are taken", "ARMED_LIMIT")
        self._ops(request)  # refuses a plan that is unknown
        self.armed[free] = request
        return pb.ArmedPlan(slot=free, device="cpu:0", estimated_seconds=1e-6)

    def disarm_plan(self, request: pb.DisarmPlanRequest) -> pb.DisarmPlanResponse:
        for slot in request.slots:
            if self.armed.pop(slot, None) is None:
                raise Refused("NOT_FOUND", f"slot {slot} is not armed", "SLOT")
        return pb.DisarmPlanResponse()

    def list_armed(self, _: pb.ListArmedRequest) -> pb.ListArmedResponse:
        return pb.ListArmedResponse(
            slots=[
                pb.ArmedSlot(slot=slot, code=5, message=str(error), reason=error.reason)
                for slot, error in self.last.items()
            ]
        )

    def close(self) -> None:
        self.stopped.set()
        self.goes.set()
        self._thread.join()
        os.close(self.region.wake)

    def _ops(self, request: pb.ArmPlanRequest):
        from gemmd.v1 import compute_service_pb2 as comp

        return self._fake.planned(comp.PlanRun(plan_id=request.plan_id, rebind=request.rebind))

    def _poll(self) -> None:
        words, region = self.region.words, self.region
        gates = words[region.gate(0) : region.gate(SLOTS)]
        while not self.stopped.is_set():
            for slot in np.flatnonzero(gates):
                gates[slot] = 0
                self._run(int(slot))
            time.sleep(0.0002)

    def _run(self, slot: int) -> None:
        request = self.armed.get(slot)
        if request is None:
            self.region.answer(slot, 0, 5, "the slot is not armed", "SLOT")
            return
        self.goes.wait()
        try:
            report, _ = self._fake.run_ops(self._ops(request))
        except Refused as refused:
            self.last[slot] = refused
            self.region.answer(slot, 0, 5, str(refused), refused.reason)
        else:
            self.region.answer(slot, int(report.device_seconds * 1e9), 0, "", "")
