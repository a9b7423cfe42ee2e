"""A daemon among clients that crash, read slowly, give up and come anew, while its operator reloads
it and rotates its certificates. Whoever behaves must notice nothing, and nothing may stay behind."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from actors import Canceller, Churner, Crasher, Newcomer, Operator, SlowReader, Steady
from secured import Secured, running
from slopes import Watch, growth, wait_until

# Live things, by the daemon's own account. All zero when nobody is there.
GAUGES = ("sessions", "buffers", "buffer_bytes", "plans", "streams", "programs", "queue_depth")


def live(daemon: Secured) -> dict[str, float]:
    samples = daemon.samples()
    totals = dict.fromkeys(GAUGES, 0.0)
    for series, value in samples.items():
        name = series.split("{")[0].removeprefix("gemmd_")
        if name in totals:
            totals[name] += value
    return totals


def total(daemon: Secured, name: str, label: str = "") -> float:
    return sum(v for k, v in daemon.samples().items() if k.split("{")[0] == name and label in k)


def reloads_missing(daemon: Secured) -> list[str]:
    """Results of a reload that there should have been by now."""
    least = {"ok": 2, "invalid": 1, "refused": 1}
    return [
        result
        for result, count in least.items()
        if total(daemon, "gemmd_config_reloads_total", f'result="{result}"') < count
    ]


class Cast:
    """Actors, each on a thread of its own, round after round."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._threads: list[threading.Thread] = []
        self.failures: list[str] = []
        self.rounds: dict[str, int] = {}

    def add(self, actor, pause_s: float) -> None:
        name = f"{type(actor).__name__}-{len(self._threads)}"
        self.rounds[name] = 0
        self._threads.append(threading.Thread(target=self._run, args=[name, actor, pause_s]))

    def _run(self, name: str, actor, pause_s: float) -> None:
        while not self._stop.is_set():
            try:
                actor.round()
                self.rounds[name] += 1
            except Exception:  # told at the end; a soak goes on
                self.failures.append(f"{name}: {traceback.format_exc()}")
            self._stop.wait(pause_s)
        actor.close()

    def play(self, seconds: float, enough: Callable[[], bool]) -> None:
        """For that long; on a busy machine, which warms up and leaks slowly, up to three minutes more."""
        for thread in self._threads:
            thread.start()
        self._stop.wait(seconds)
        for _ in range(3):
            if enough():
                break
            self._stop.wait(min(seconds, 60))
        else:
            enough()
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "an actor hangs"


def soak(gemmd: str, doomed: str, folder, seconds: float, leaks: frozenset[str] = frozenset()) -> list[str]:
    """What was not as it should be, in words. `leaks` is what the daemon is known to."""
    with running(gemmd, folder) as daemon:
        stop = threading.Event()
        cast = Cast(stop)
        cast.add(Steady(daemon, 1), 0)
        cast.add(Steady(daemon, 2), 0.01)
        cast.add(Newcomer(daemon), 0.05)
        cast.add(Churner(daemon), 0)
        cast.add(Crasher(daemon, doomed), 1)
        cast.add(SlowReader(daemon), 0.5)
        cast.add(Canceller(daemon), 0.05)
        cast.add(Operator(daemon, stop), 0.5)
        grown: list[str] = []
        with Watch(daemon.process.pid) as watch:

            def as_expected() -> bool:
                grown[:] = growth(watch.looks)
                played = all(cast.rounds.values()) and not reloads_missing(daemon)
                return played and {one.split()[0] for one in grown} == leaks

            cast.play(seconds, as_expected)
        complaints = cast.failures[:3]
        if len(cast.failures) > 3:
            complaints.append(f"and {len(cast.failures) - 3} failures more")
        complaints += [f"{name} got no round done" for name, n in cast.rounds.items() if n == 0]
        if not wait_until(lambda: not any(live(daemon).values()), 120):
            complaints.append(f"left behind: {live(daemon)}")
        complaints += grown
        complaints += [
            f"no reload was {result}: the soak did not do its part" for result in reloads_missing(daemon)
        ]
        first, last = watch.looks[len(watch.looks) // 3], watch.looks[-1]
        print(f"{seconds:.0f} s, rounds {cast.rounds}, requests"
              f" {total(daemon, 'gemmd_requests_total'):.0f}, from {first} to {last}")
    return complaints


def test_nobody_who_behaves_notices_and_nothing_stays(programs, tmp_path, seconds):
    complaints = soak(programs("--gemmd"), programs("--doomed-client"), tmp_path, seconds)
    assert not complaints, "\n".join(complaints)


def test_the_same_checks_find_a_planted_leak(programs, tmp_path, seconds):
    complaints = soak(
        programs("--gemmd-leaky"),
        programs("--doomed-client"),
        tmp_path,
        min(seconds, 60),
        frozenset({"resident_bytes", "descriptors"}),
    )
    grown = [complaint for complaint in complaints if " grew from " in complaint]
    assert any(complaint.startswith("resident_bytes") for complaint in grown), complaints
    assert any(complaint.startswith("descriptors") for complaint in grown), complaints
    assert grown == complaints, complaints
