"""Several servers as one: where calls go, and when they are made again."""

import asyncio
import threading

import pytest

import gemmd
import gemmd.aio
from gemmd._connection.elsewhere import addresses, client_options
from gemmd._wire import methods
from gemmd.retry import Retry

from .fake.server import FakeServer
from .test_session import eventually

ONCE = Retry(attempts=1)


@pytest.fixture
def pair(tmp_path):
    servers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        servers.append(FakeServer(str(tmp_path / name)))
    yield servers
    for server in servers:
        server.close()


class Prepared:
    """Counts how often a session was prepared."""

    def __init__(self):
        self.times = 0

    def __call__(self, session):
        self.times += 1
        return self.times


def opened(servers, prepare=None, **options):
    options = {"retry": ONCE, "patience_s": 10.0, "timeout_s": 10.0, **options}
    targets = [server.target for server in servers]
    replicas = gemmd.Replicas(targets, prepare or Prepared(), **options)
    assert eventually(lambda: replicas.serving == len(servers))
    return replicas


def work(session, state):
    """A call that needs its session, and nothing else."""
    session.buffers()
    return state


def calls(servers):
    return [server.count(methods.LIST_BUFFERS) for server in servers]


def test_calls_are_shared_among_those_that_serve(pair):
    with opened(pair) as replicas:
        for _ in range(10):
            replicas.run(work)
    assert calls(pair) == [5, 5]
    assert [server.count(methods.CLOSE_SESSION) for server in pair] == [1, 1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNAVAILABLE", "DRAINING"),
        ("UNAVAILABLE", "DEVICE_FENCED"),
        ("UNAVAILABLE", ""),
        ("NOT_FOUND", "SESSION_GONE"),
    ],
)
def test_a_call_goes_elsewhere(pair, code, reason):
    prepare = Prepared()
    with opened(pair, prepare) as replicas:
        for server in pair:
            server.fail(methods.LIST_BUFFERS, code, "go away", reason)
        # Both fail once: the call comes back to one that was prepared anew.
        assert replicas.run(work) >= 3
        assert sum(calls(pair)) == 3
        assert eventually(lambda: replicas.serving == 2)
    assert prepare.times == 4


@pytest.mark.parametrize(
    "error",
    [
        gemmd.InvalidArgument("no"),
        gemmd.ResourceExhausted("no", reason="QUEUE_LIMIT"),
        gemmd.DeadlineExceeded("no"),
        gemmd.NotFound("no", reason="BUFFER_GONE"),
        gemmd.Internal("no"),
        ValueError("no"),
    ],
)
def test_what_would_fail_anywhere_is_raised(pair, error):
    tried = []

    def fail(session, state):
        tried.append(state)
        raise error

    with opened(pair) as replicas:
        with pytest.raises(type(error)):
            replicas.run(fail)
        assert len(tried) == 1
        assert replicas.serving == 2


def test_a_call_that_servers_die_under_does_not_go_round_them_all(pair):
    with opened(pair) as replicas:
        for server in pair:
            server.fail(methods.LIST_BUFFERS, "UNAVAILABLE", "Socket closed", times=10)
        with pytest.raises(gemmd.Unavailable):
            replicas.run(work)
        assert sum(calls(pair)) == 3


def test_a_call_waits_for_the_only_server_to_come_back(tmp_path):
    server = FakeServer(str(tmp_path))
    prepare = Prepared()
    with opened([server], prepare) as replicas:
        server.close()
        got = []
        caller = threading.Thread(target=lambda: got.append(replicas.run(work)))
        caller.start()
        assert eventually(lambda: replicas.serving == 0)
        server = FakeServer(str(tmp_path))
        caller.join(20)
        assert got == [2]
    server.close()


def test_patience_ends_and_names_the_trouble(tmp_path):
    server = FakeServer(str(tmp_path))
    with opened([server], patience_s=0.5) as replicas:
        server.close()
        with pytest.raises(gemmd.Unavailable, match="no server takes work: unix:"):
            replicas.run(work)
        with pytest.raises(gemmd.Unavailable):
            replicas.run(work, timeout_s=0.05)


def test_one_that_drains_is_left_for_another(pair, monkeypatch):
    monkeypatch.setattr("gemmd.hold.HEARTBEAT_S", 0.02)
    one, two = pair
    with opened(pair) as replicas:
        one.health = b"\x08\x02"
        one.drain.set()
        assert eventually(lambda: replicas.serving == 1)
        before = calls(pair)
        for _ in range(10):
            replicas.run(work)
        assert calls(pair) == [before[0], before[1] + 10]
        # Alone and still taking work, it is better than none.
        two.health = b"\x08\x02"
        two.fail(methods.LIST_BUFFERS, "UNAVAILABLE", "draining", "DRAINING")
        replicas.run(work)
        assert calls(pair)[0] == before[0] + 1


def test_what_waiting_would_not_mend_is_raised_at_once(pair):
    def cannot(session):
        raise ValueError("shape")

    targets = [server.target for server in pair]
    with pytest.raises(ValueError, match="shape"):
        gemmd.Replicas(targets, cannot, retry=ONCE)
    with pytest.raises(ValueError, match="no targets"):
        gemmd.Replicas([], Prepared())
    with pytest.raises(FileNotFoundError):
        gemmd.Replicas(targets, Prepared(), token_file="/no/such/file")
    with pytest.raises(gemmd.Unavailable, match="no server"):
        gemmd.Replicas(["unix:/no/such/socket"], Prepared(), patience_s=0.2)


def test_servers_come_and_go_with_the_names_addresses(pair):
    one, two = pair
    found = [[one.target]]

    def lookup(target):
        assert target == "gemm.example:8470"
        if found[0] is None:
            raise OSError("no DNS")
        return found[0]

    with gemmd.Replicas(
        ["gemm.example:8470"], Prepared(), lookup=lookup, lookup_period_s=0.01, retry=ONCE
    ) as replicas:
        assert eventually(lambda: replicas.serving == 1)
        found[0] = [one.target, two.target]
        assert eventually(lambda: replicas.serving == 2)
        found[0] = None
        for _ in range(4):
            replicas.run(work)
        assert replicas.serving == 2
        found[0] = [two.target]
        assert eventually(lambda: one.count(methods.CLOSE_SESSION) == 1)
        before = calls(pair)
        for _ in range(4):
            replicas.run(work)
        assert calls(pair) == [before[0], before[1] + 4]


def test_many_callers_while_sessions_end_under_them(pair):
    failures = []

    def caller():
        for _ in range(50):
            try:
                replicas.run(work)
            except Exception as error:
                failures.append(error)

    with opened(pair) as replicas:
        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            for server in pair:
                server.fail(methods.LIST_BUFFERS, "UNAVAILABLE", "draining", "DRAINING", times=2)
            at = sum(calls(pair)) + 20
            assert eventually(lambda at=at: sum(calls(pair)) >= min(at, 200))
        for thread in threads:
            thread.join(20)
    assert failures == []


def in_loop(pair, test, **options):
    async def run():
        async def prepare(session):
            return session.name

        options_ = {"retry": ONCE, "patience_s": 10.0, **options}
        targets = [server.target for server in pair]
        async with gemmd.aio.Replicas(targets, prepare, **options_) as replicas:
            while replicas.serving < len(pair):
                await asyncio.sleep(0.001)
            await test(replicas)

    asyncio.run(asyncio.wait_for(run(), 20))


async def work_aio(session, state):
    await session.buffers()
    return state


def test_asyncio_goes_elsewhere_too(pair):
    for server in pair:
        server.fail(methods.LIST_BUFFERS, "UNAVAILABLE", "go away", "DRAINING")

    async def test(replicas):
        got = await asyncio.gather(*(replicas.run(work_aio) for _ in range(50)))
        assert got == ["s-1"] * 50
        while replicas.serving < 2:
            await asyncio.sleep(0.001)

    in_loop(pair, test)
    assert [server.count(methods.OPEN_SESSION) for server in pair] == [2, 2]
    assert [server.count(methods.CLOSE_SESSION) for server in pair] == [2, 2]


def test_asyncio_gives_up_like_the_other(pair):
    async def test(replicas):
        for server in pair:
            server.fail(methods.LIST_BUFFERS, "UNAVAILABLE", "Socket closed", times=10)
        with pytest.raises(gemmd.Unavailable):
            await replicas.run(work_aio)
        assert sum(calls(pair)) == 3

        async def wrong(session, state):
            raise gemmd.InvalidArgument("no")

        with pytest.raises(gemmd.InvalidArgument):
            await replicas.run(wrong)

    in_loop(pair, test)


def test_asyncio_waits_for_the_only_server(tmp_path):
    server = FakeServer(str(tmp_path))

    async def test(replicas):
        await asyncio.to_thread(server.close)
        call = asyncio.create_task(replicas.run(work_aio))
        while replicas.serving:
            await asyncio.sleep(0.001)
        again = await asyncio.to_thread(FakeServer, str(tmp_path))
        assert await call == "s-1"
        await asyncio.to_thread(again.close)

    in_loop([server], test)


def test_only_names_are_looked_up_and_certificates_have_the_name():
    for target in ("unix:/x", "127.0.0.1:1", "10.0.0.1:1", "localhost:1"):
        assert addresses(target) == [target]
        tls = gemmd.Tls(server_name="")
        assert client_options({"tls": tls}, target)["tls"] is tls
    with pytest.raises(OSError):
        addresses("no-such-host.invalid:1")
    options = client_options({"tls": gemmd.Tls(ca="ca.crt"), "timeout_s": 1}, "gemm.example:8470")
    assert options == {"tls": gemmd.Tls(ca="ca.crt", server_name="gemm.example"), "timeout_s": 1}
    named = gemmd.Tls(server_name="other")
    assert client_options({"tls": named}, "gemm.example:8470")["tls"] is named
