"""Calls gemmd every few milliseconds for so long, and tells what a worker notices: every error, with its time, and the
longest time without an answer. A session that is lost is opened again.

    watch.py SERVER SECONDS
"""

from __future__ import annotations

import sys
import time

import gemmd


def is_right(session: gemmd.Session, x: object, y: object) -> bool:
    session.execute([gemmd.matmul(x, x, y)])
    return float(session.execute([gemmd.read(y.tensor()[0:1, 0:1])])[0][0, 0]) == 64.0


def serve_until(client: gemmd.Client, end: float, began: float, seen: dict) -> None:
    with client.session(hold=False) as session:
        x = session.create_buffer(shape=(64, 64), dtype="f32")
        y = session.create_buffer(shape=(64, 64), dtype="f32")
        session.execute([gemmd.fill(x, 1)])
        while time.monotonic() < end:
            seen["right" if is_right(session, x, y) else "WRONG"] += 1
            now = time.monotonic()
            if now - seen["last"] > seen["gap"]:
                seen["gap"], seen["gap_at"] = now - seen["last"], seen["last"] - began
            seen["last"] = now
            time.sleep(0.003)


def main() -> None:
    server, seconds = sys.argv[1], float(sys.argv[2])
    began = time.monotonic()
    end = began + seconds
    seen = {"right": 0, "WRONG": 0, "gap": 0.0, "gap_at": 0.0, "last": began}
    errors: list[str] = []
    client = gemmd.Client(server, timeout_s=10, retry=gemmd.Retry(attempts=1))
    while time.monotonic() < end:
        try:
            serve_until(client, end, began, seen)
        except gemmd.Error as error:
            text = f"{type(error).__name__} {error.reason}: {str(error)[:110]}"
            if not errors or not errors[-1].endswith(text):
                errors.append(f"at {time.monotonic() - began:.2f} s {text}")
            time.sleep(0.02)
    print(f"  right answers {seen['right']}, wrong {seen['WRONG']}; longest time without one {seen['gap']:.2f} s,"
          f" from {seen['gap_at']:.2f} s on")
    for line in errors[:6]:
        print(f"  {line}")
    print(f"  {len(errors)} kinds of errors in turn")


if __name__ == "__main__":
    main()
