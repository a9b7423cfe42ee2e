"""Synchronising calls of CUDA in steady state, counted by CUPTI: none is wanted."""

from __future__ import annotations

import collections
import ctypes
import glob
import os
import sys

import figure
import torch

import gemmd

_DRIVER_API, _RUNTIME_API = 1, 2  # CUPTI_CB_DOMAIN_*
_MOST_IDS = 1200
_ENTER = 0  # CUPTI_API_ENTER: the first word of the callback's data


def library() -> ctypes.CDLL:
    folders = [os.path.dirname(torch.__file__) + "/../nvidia/*/lib", "/usr/local/cuda*/extras/CUPTI/lib64",
               "/usr/local/cuda*/lib64"]  # fmt: skip
    for folder in folders:
        for path in sorted(glob.glob(f"{folder}/libcupti.so*")):
            return ctypes.CDLL(path)
    return ctypes.CDLL("libcupti.so")


class Counter:
    """Counts entries into what CUPTI lists under a name that `wanted` accepts."""

    def __init__(self, wanted: object) -> None:
        self.cupti = library()
        self.counts: collections.Counter[str] = collections.Counter()
        self.names: dict[tuple[int, int], str] = {}
        self.subscriber = ctypes.c_void_p()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        self.callback = kind(self.called)
        self.check(self.cupti.cuptiSubscribe(ctypes.byref(self.subscriber), self.callback, None), "cuptiSubscribe")
        for domain in (_DRIVER_API, _RUNTIME_API):
            for number in range(1, _MOST_IDS):
                name = ctypes.c_char_p()
                if self.cupti.cuptiGetCallbackName(domain, number, ctypes.byref(name)) != 0 or not name.value:
                    continue
                text = name.value.decode()
                if not wanted(text):
                    continue
                if self.cupti.cuptiEnableCallback(1, self.subscriber, domain, number) == 0:
                    self.names[domain, number] = text

    def check(self, code: int, what: str) -> None:
        if code != 0:
            raise RuntimeError(f"{what}: CUPTI error {code}")

    def called(self, _: int, domain: int, number: int, data: int) -> None:
        if ctypes.cast(data, ctypes.POINTER(ctypes.c_int))[0] == _ENTER:
            self.counts[self.names.get((domain, number), f"{domain}:{number}")] += 1

    def close(self) -> None:
        self.cupti.cuptiUnsubscribe(self.subscriber)


def synchronises(name: str) -> bool:
    """Waits of the host: for a stream, an event, a device or a context, and copies that wait."""
    plain = name.split("_v")[0]
    if "Synchronize" in plain:
        return True
    copies = plain.startswith(("cuMemcpy", "cudaMemcpy")) and "Async" not in plain
    return copies or plain.startswith(("cuMemAlloc", "cuMemFree", "cudaMalloc", "cudaFree"))


def main() -> None:
    calls = 300 if figure.quick() else 10_000
    with gemmd.Client(figure.server()) as client, client.session(label="syncs", device=figure.device()) as session:
        weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
        layer = gemmd.Linear(session, weight)
        x = torch.randn(16, 1024, device="cuda", dtype=torch.bfloat16)
        for _ in range(100):
            y = layer(x)
        torch.cuda.synchronize()
        counter = Counter(synchronises)
        torch.cuda.synchronize()
        seen = sum(counter.counts.values())
        assert seen > 0, f"CUPTI counts nothing: {len(counter.names)} calls are watched"
        counter.counts.clear()
        for _ in range(calls):
            y = layer(x)
        found = dict(counter.counts)
        counter.close()
        torch.cuda.synchronize()
        assert torch.isfinite(y).all()
        figure.add("5", f"synchronising calls in {calls} calls of a layer", float(sum(found.values())), "calls", 0,
                   found=found, watched=len(counter.names))  # fmt: skip


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
