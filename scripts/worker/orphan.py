"""The daemon is killed with work rung: how long until the caller's stream is through, and what the next call
raises. DAEMON is its process. The last phase: it leaves no daemon.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import figure

import gemmd


def by_stream(session: gemmd.Session) -> None:
    import torch

    layer = gemmd.Linear(session, torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16))
    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):
        layer(x)
    torch.cuda.synchronize()
    for _ in range(300):
        layer(x)
    os.kill(int(os.environ["DAEMON"]), signal.SIGKILL)
    began = time.perf_counter()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    raised = what_raises(lambda: layer(x))
    torch.cuda.synchronize()  # whatever was queued before it was known
    figure.add("6", "stream released after the daemon's death", seconds, "s", 1, next_call=raised)
    figure.add("6", "the next call raises", float(bool(raised)), "1 is yes", 1, at_most=False, error=raised)


def by_host(session: gemmd.Session) -> None:
    x, y = (session.create_buffer(shape=(256, 256), dtype="f32") for _ in range(2))
    armed = session.plan([gemmd.matmul(x, x, y)] * 100).arm()
    armed.run(60)
    armed.ring()
    os.kill(int(os.environ["DAEMON"]), signal.SIGKILL)
    began = time.perf_counter()
    raised = what_raises(lambda: armed.wait(20))
    figure.add("6", "host's wait ended after the daemon's death", time.perf_counter() - began, "s", 1, error=raised)
    raised = what_raises(armed.ring)
    figure.add("6", "the next ring raises", float(bool(raised)), "1 is yes", 1, at_most=False, error=raised)


def what_raises(call: object) -> str:
    try:
        call()
    except gemmd.Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    client = gemmd.Client(figure.server())
    session = client.session(label="orphan", device=figure.device())
    (by_stream if figure.device().startswith("cuda") else by_host)(session)


if __name__ == "__main__":
    status = figure.guarded(main)
    sys.stdout.flush()
    os._exit(status)  # nobody is left to close a session with
