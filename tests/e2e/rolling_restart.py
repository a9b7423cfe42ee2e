#!/usr/bin/env python3
"""Two daemons behind one Python client, restarted one after the other while it works: no call fails,
of threads and of asyncio. Arguments: the daemon's binary, and how many calls each makes at least."""

import asyncio
import contextlib
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import gemmd
import gemmd.aio

WEIGHTS = (np.arange(8 * 16, dtype=np.float32).reshape(8, 16) % 7) - 3  # [n, k]
CALLERS = 4
CONFIG = """
listeners {{ address: "unix:{folder}/gemmd.sock" }}
devices {{ name: "cpu:0" threads: 1 memory_bytes: 67108864 }}
drain {{ notice_ms: 300 limit_ms: 20000 }}
share {{ disabled: true }}
"""


class Daemon:
    def __init__(self, binary, folder):
        folder.mkdir()
        self.binary, self.folder = binary, folder
        self.target = f"unix:{folder}/gemmd.sock"
        (folder / "config").write_text(CONFIG.format(folder=folder), encoding="utf-8")
        self.start()

    def start(self):
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--config", self.folder / "config", "--ready-file", ready], stderr=log)
        await_that(lambda: ready.exists() and ready.stat().st_size > 0, "the daemon to serve")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if (status := self.process.wait(60)) != 0:
            sys.exit(f"gemmd exited with {status}:\n{(self.folder / 'log').read_text()}")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(60)


def await_that(condition, what):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"waited 60 s for {what}")
        time.sleep(0.005)


def inputs(call):
    """Small whole numbers, others for each call: exact, and another call's result is not this one's."""
    return (np.arange(4 * 16, dtype=np.float32).reshape(4, 16) * 5 + call) % 11 - 5


class Count:
    """Of calls, by their callers; `stop` ends them once there are enough."""

    def __init__(self, least):
        self.least, self.made, self.failures, self.stop = least, 0, [], False

    def again(self):
        return not self.stop or self.made < self.least

    def note(self, call, y):
        self.made += 1
        if not np.array_equal(y, inputs(call) @ WEIGHTS.T):
            self.failures.append(f"call {call}: not the product")


def restart_all(daemons, count, serving):
    """As a rolling update does: on to the next one when this one is there again."""
    for daemon in daemons:
        for act in (daemon.stop, daemon.start):
            before = count.made
            await_that(lambda: count.made > before + 50 or count.failures, "calls to go on")
            act()
        await_that(lambda: serving() == len(daemons), "both to serve")
    count.stop = True


def report(kind, count, least):
    print(f"{kind}: {count.made} calls, {len(count.failures)} failed")
    if count.failures or count.made < least:
        sys.exit("\n".join(map(str, count.failures[:5])) or "too few calls")


def by_threads(daemons, least):
    count = Count(least)

    def prepare(session):
        return session.upload(WEIGHTS)

    def caller(replicas, first):
        call = first
        while count.again():
            try:
                y = replicas.run(lambda session, w: session.matmul(inputs(call), w.T))
                count.note(call, y)
            except Exception as error:  # whatever it is, it is a failed call
                count.failures.append(f"call {call}: {error!r}")
            call += CALLERS

    with gemmd.Replicas([daemon.target for daemon in daemons], prepare) as replicas:
        await_that(lambda: replicas.serving == len(daemons), "both to serve")
        threads = [threading.Thread(target=caller, args=(replicas, i)) for i in range(CALLERS)]
        for thread in threads:
            thread.start()
        restart_all(daemons, count, lambda: replicas.serving)
        for thread in threads:
            thread.join()
    report("threads", count, least)


async def by_asyncio(daemons, least):
    count = Count(least)

    async def prepare(session):
        return await session.upload(WEIGHTS)

    async def caller(replicas, first):
        call = first
        while count.again():
            try:
                y = await replicas.run(lambda session, w: session.matmul(inputs(call), w.T))
                count.note(call, y)
            except Exception as error:
                count.failures.append(f"call {call}: {error!r}")
            call += CALLERS

    async with gemmd.aio.Replicas([daemon.target for daemon in daemons], prepare) as replicas:
        while replicas.serving < len(daemons):
            await asyncio.sleep(0.005)
        callers = [asyncio.create_task(caller(replicas, i)) for i in range(CALLERS)]
        await asyncio.to_thread(restart_all, daemons, count, lambda: replicas.serving)
        await asyncio.gather(*callers)
    report("asyncio", count, least)


def main():
    binary, least = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        daemons = []
        for name in ("one", "two"):
            daemons.append(Daemon(binary, pathlib.Path(folder) / name))
            running.callback(daemons[-1].kill)
        by_threads(daemons, least)
        asyncio.run(by_asyncio(daemons, least))


if __name__ == "__main__":
    main()
