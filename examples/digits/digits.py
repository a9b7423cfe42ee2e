"""Handwritten digits through gemmd, in FP8 with block scales and in float32. See README.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

import gemmd
import network
from network import CLASSES, HIDDEN, PIXELS, Digits, Network

PADDED = 16  # classes, filled up with zero weights: FP8 kernels want rows of 16 bytes
ALLOWED_LOSS = 0.01  # of accuracy, by FP8 against float32
RUNS = 50


def padded(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows for the classes that do not exist."""
    room = np.zeros((PADDED, *array.shape[1:]), np.float32)
    room[: len(array)] = array
    return room


class Resident:
    """The network's weights on the device, and the memory that a run needs for `count` images."""

    def __init__(self, session: gemmd.Session, net: Network, count: int) -> None:
        self.session = session
        self.count = count
        self.w1 = session.upload(net.w1, dtype="f32", label="w1")
        self.b1 = session.upload(net.b1, dtype="f32", label="b1")
        self.w2 = session.upload(padded(net.w2), label="w2")
        self.b2 = session.upload(padded(net.b2), label="b2")
        self.x = session.create_buffer(shape=(count, PIXELS), dtype="f32")
        self.hidden = session.create_buffer(shape=(count, HIDDEN), dtype="f32")
        self.logits = session.create_buffer(shape=(count, PADDED), dtype="f32")

    def float32(self) -> gemmd.Plan:
        """One program for the network: write, two matmuls, read."""
        return self.session.plan(
            [
                gemmd.write(self.x, np.zeros(self.x.shape, np.float32)),
                gemmd.matmul(self.x, self.w1, self.hidden, bias=self.b1, activation="relu"),
                gemmd.matmul(self.hidden, self.w2, self.logits, bias=self.b2),
                gemmd.read(self.logits),
            ],
            label="digits float32",
        )

    def fp8(self) -> gemmd.Plan:
        """The same in FP8. Weights are quantised here, once; activations in every run, on the
        device.
        """
        by_tile, by_row = gemmd.Granularity.BLOCK_128X128, gemmd.Granularity.BLOCK_1X128
        w1 = self.session.operand(self.w1.shape, by_tile)
        w2 = self.session.operand(self.w2.shape, by_tile)
        self.session.execute([gemmd.quantize(self.w1, w1), gemmd.quantize(self.w2, w2)])
        x = self.session.operand(self.x.shape, by_row)
        hidden = self.session.operand(self.hidden.shape, by_row)
        return self.session.plan(
            [
                gemmd.write(self.x, np.zeros(self.x.shape, np.float32)),
                gemmd.quantize(self.x, x),
                gemmd.matmul(x, w1, self.hidden, bias=self.b1, activation="relu"),
                gemmd.quantize(self.hidden, hidden),
                gemmd.matmul(hidden, w2, self.logits, bias=self.b2),
                gemmd.read(self.logits),
            ],
            label="digits fp8",
        )


def measure(plan: gemmd.Plan, data: Digits, exact: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Accuracy, error against float64, and what a run of the whole network costs."""
    seconds = []
    reports = []
    for _ in range(RUNS):
        began = time.perf_counter()
        result = plan.run(inputs=[data.images])
        logits = result[0][:, :CLASSES]
        seconds.append(time.perf_counter() - began)
        reports.append(result.report)
    report = sorted(reports, key=lambda one: one.device_seconds)[RUNS // 2]
    products = [op for op in report.ops if op.op == "matmul"]
    busy = sum(op.device_seconds for op in products)
    return {
        "accuracy": float(np.mean(logits.argmax(axis=1) == data.digits)),
        "relative_error": float(np.linalg.norm(logits - exact) / np.linalg.norm(exact)),
        "round_trip_ms": float(np.median(seconds)) * 1e3,
        "device_ms": report.device_seconds * 1e3,
        "images_per_s": len(data.images) / float(np.median(seconds)),
        "matmul_gflop_per_s": sum(op.flops for op in products) / busy / 1e9 if busy else 0.0,
        "kernels": [op.kernel for op in products],
    }


def run(server: str | None) -> dict[str, Any]:
    learn, held_out = network.load()
    began = time.perf_counter()
    net = network.fit(learn)
    fitting = time.perf_counter() - began
    exact = net.logits(held_out.images)
    with gemmd.Client(server) as client, client.session(label="digits") as session:
        resident = Resident(session, net, len(held_out.images))
        figures: dict[str, Any] = {
            "images": len(held_out.images),
            "device": session.device,
            "fit_seconds": fitting,
            "numpy_float64_accuracy": float(np.mean(exact.argmax(axis=1) == held_out.digits)),
            "float32": measure(resident.float32(), held_out, exact),
            "fp8": measure(resident.fp8(), held_out, exact),
        }
    figures["accurate"] = (
        figures["fp8"]["accuracy"] >= figures["float32"]["accuracy"] - ALLOWED_LOSS
    )
    return figures


def show(figures: dict[str, Any]) -> None:
    print(f"{figures['images']} images held out, fitted in {figures['fit_seconds']:.1f} s")
    print(f"numpy float64: {figures['numpy_float64_accuracy']:.2%} right; on {figures['device']}:")
    for name in ("float32", "fp8"):
        row = figures[name]
        print(
            f"  {name:8} {row['accuracy']:.2%} right, error {row['relative_error']:.1e}, "
            f"{row['round_trip_ms']:.2f} ms a run ({row['device_ms']:.2f} on the device), "
            f"{row['images_per_s']:,.0f} images/s, {row['matmul_gflop_per_s']:.1f} GFLOP/s"
        )
        print(f"           kernels: {', '.join(row['kernels'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="default: GEMMD_SERVER, or a gemmd of this machine")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    try:
        figures = run(options.server)
    except gemmd.Error as error:
        print(f"digits: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(figures))
    else:
        show(figures)
    if not figures["accurate"]:
        print("digits: fp8 is more than 1 point below float32", file=sys.stderr)
    return 0 if figures["accurate"] else 1


if __name__ == "__main__":
    sys.exit(main())
