"""TLS and tokens, against a fake server with real certificates."""

import asyncio
import contextlib
import itertools
import os
import socket
import threading
import warnings

import numpy as np
import pytest
import trustme

import gemmd
import gemmd.aio
from gemmd._connection.target import name_of, stays_on_host
from gemmd._wire import methods
from gemmd.retry import Retry

from .fake.secure import SecureServer
from .test_session import eventually

ONCE = Retry(attempts=1)
TOKEN = "t" * 32


class Files:
    """PEM files of two authorities, and what they signed."""

    def __init__(self, folder):
        self.folder = folder
        self.ours, self.others = trustme.CA(), trustme.CA()
        self.ca = self.put("ca.crt", self.ours.cert_pem.bytes())
        self.other_ca = self.put("other.crt", self.others.cert_pem.bytes())

    def put(self, name, data):
        path = self.folder / name
        new = self.folder / f"{name}.new"
        new.write_bytes(data)
        os.chmod(new, 0o600)
        os.replace(new, path)
        return path

    def identity(self, authority, name):
        issued = authority.issue_cert("127.0.0.1", "gemmd.example", common_name=name)
        return issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()

    def client(self, authority, name="client"):
        key, certificate = self.identity(authority, name)
        return {
            "cert": self.put(f"{name}.crt", certificate),
            "key": self.put(f"{name}.key", key),
        }

    def server(self, ask=False):
        key, certificate = self.identity(self.ours, "server")
        authority = self.ca if ask else None
        return SecureServer(
            self.put("server.key", key), self.put("server.crt", certificate), authority
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("pem"))


@pytest.fixture(scope="module")
def secure(files):
    server = files.server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def mutual(files):
    server = files.server(ask=True)
    yield server
    server.close()


def reach(server, **options):
    """The error of a call, or None."""
    with gemmd.Client(server.target, timeout_s=5, retry=ONCE, **options) as client:
        try:
            client.info()
        except gemmd.Error as error:
            return error
    return None


def reach_aio(server, **options):
    async def go():
        async with gemmd.aio.Client(server.target, timeout_s=5, retry=ONCE, **options) as client:
            try:
                await client.info()
            except gemmd.Error as error:
                return error
        return None

    return asyncio.run(go())


@pytest.fixture(params=[reach, reach_aio], ids=["sync", "aio"])
def way(request):
    return request.param


def test_a_server_whose_authority_is_known_is_reached(secure, files, way):
    assert way(secure, tls=gemmd.Tls(ca=files.ca)) is None
    assert way(secure, tls=gemmd.Tls(ca=files.ca, server_name="gemmd.example")) is None


def test_why_no_connection_stands_and_what_to_do(secure, files, way):
    rows = {
        "may have TLS; give tls": None,
        "not vouched for by": gemmd.Tls(ca=files.other_ca),
        "this system's authorities": gemmd.Tls(),
        "does not have the name 'not.example'": gemmd.Tls(ca=files.ca, server_name="not.example"),
    }
    for text, tls in rows.items():
        error = way(secure, tls=tls)
        assert isinstance(error, gemmd.Unavailable)
        assert text in str(error)


def test_a_server_without_tls_is_told(files, way):
    class Plain:
        """Answers with what begins a connection of HTTP/2."""

        def __init__(self):
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.target = f"127.0.0.1:{self.socket.getsockname()[1]}"
            threading.Thread(target=self.serve, daemon=True).start()

        def serve(self):
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = self.socket.accept()
                    connection.sendall(b"\0\0\0\4\0\0\0\0\0")
                    connection.recv(1 << 16)
                    connection.close()

    plain = Plain()
    assert "speaks no TLS" in str(way(plain, tls=gemmd.Tls(ca=files.ca)))
    plain.socket.close()


def test_a_certificate_is_shown_where_one_is_asked_for(mutual, files, way):
    good = gemmd.Tls(ca=files.ca, **files.client(files.ours))
    assert way(mutual, tls=good) is None
    assert "asks for a client certificate" in str(way(mutual, tls=gemmd.Tls(ca=files.ca)))
    foreign = gemmd.Tls(ca=files.ca, **files.client(files.others, "foreign"))
    assert "does not take cert=" in str(way(mutual, tls=foreign))


def test_waiting_for_a_connection_says_why_too(secure, files):
    with (
        gemmd.Client(secure.target, tls=gemmd.Tls(ca=files.other_ca)) as client,
        pytest.raises(gemmd.Unavailable, match="not vouched for by"),
    ):
        client.wait_ready(0.2)


@pytest.mark.parametrize(
    ("tls", "kind", "text"),
    [
        ({"ca": "absent"}, OSError, "absent"),
        ({"ca": "client.key"}, ValueError, "ca="),
        ({"cert": "client.crt"}, ValueError, "belong together"),
        ({"cert": "client.crt", "key": "client.crt"}, ValueError, "cannot be used"),
        ({"cert": "client.crt", "key": "second.key"}, ValueError, "KEY_VALUES_MISMATCH"),
    ],
)
def test_files_are_looked_at_before_anything_is_sent(files, tls, kind, text):
    files.client(files.ours)
    files.client(files.ours, "second")
    paths = {name: files.folder / file for name, file in tls.items()}
    for client in (gemmd.Client, gemmd.aio.Client):
        with pytest.raises(kind, match=text):
            client("127.0.0.1:1", tls=gemmd.Tls(**paths))
        with pytest.raises(ValueError, match="TLS is for TCP"):
            client("unix:/tmp/x", tls=gemmd.Tls())


def test_a_pair_in_the_middle_of_its_renewal_is_not_refused(files):
    tls = gemmd.Tls(ca=files.ca, **files.client(files.ours))
    pairs = [files.identity(files.ours, "client") for _ in range(2)]
    stop = threading.Event()

    def renew():
        for key, certificate in itertools.cycle(pairs):
            if stop.is_set():
                return
            files.put("client.crt", certificate)
            files.put("client.key", key)
            stop.wait(0.001)

    renewals = threading.Thread(target=renew)
    renewals.start()
    try:
        for _ in range(100):
            tls.check(renewal_s=5)
            tls.credentials()
    finally:
        stop.set()
        renewals.join()


def test_a_renewed_certificate_is_shown_on_new_connections(mutual, files):
    paths = files.client(files.others)
    with gemmd.Client(mutual.target, retry=ONCE, tls=gemmd.Tls(ca=files.ca, **paths)) as client:
        with pytest.raises(gemmd.Unavailable):
            client.info(refresh=True)
        files.client(files.ours)  # under the same names

        def reached():
            try:
                return client.info(refresh=True)
            except gemmd.Unavailable:
                return None

        assert eventually(reached)


def test_a_session_outlives_the_renewal(mutual, files):
    paths = files.client(files.ours)
    with (
        gemmd.Client(mutual.target, tls=gemmd.Tls(ca=files.ca, **paths)) as client,
        client.session() as session,
    ):
        first = client.transport.channel
        files.client(files.ours)
        assert eventually(lambda: session.keep_alive() or client.transport.channel is not first)
        session.keep_alive()


@pytest.fixture
def token(files):
    return files.put("token", f"{TOKEN}\n".encode())


def test_the_token_goes_with_every_call(fake, token):
    with gemmd.Client(fake.target, token_file=token) as client, client.session() as session:
        buffer = session.upload(np.zeros(100, "f4"))
        buffer.download()
        with session.queue() as queue:
            queue.submit([gemmd.read(buffer)]).result()
        client.info()
    sent = fake.metadata
    for name in (
        methods.OPEN_SESSION, methods.HOLD, methods.UPLOAD, methods.DOWNLOAD, methods.QUEUE,
        methods.GET_SERVER_INFO, methods.CLOSE_SESSION,
    ):  # fmt: skip
        assert sent[name]["authorization"] == f"Bearer {TOKEN}", name


def test_the_token_goes_with_every_call_of_asyncio(fake, token):
    async def go():
        async with (
            gemmd.aio.Client(fake.target, token_file=token) as client,
            client.session() as session,
        ):
            buffer = await session.upload(np.zeros(100, "f4"))
            await buffer.download()
            async with session.queue() as queue:
                await (await queue.submit([gemmd.read(buffer)]))

    asyncio.run(go())
    for name in (methods.HOLD, methods.UPLOAD, methods.DOWNLOAD, methods.QUEUE):
        assert fake.metadata[name]["authorization"] == f"Bearer {TOKEN}", name


def test_a_renewed_token_is_taken_and_a_bad_one_leaves_the_old(fake, files, token):
    def shown(client):
        client.info(refresh=True)
        return fake.metadata[methods.GET_SERVER_INFO]["authorization"]

    with gemmd.Client(fake.target, token_file=token) as client:
        assert shown(client) == f"Bearer {TOKEN}"
        files.put("token", b"u" * 40)
        assert eventually(lambda: shown(client) == f"Bearer {'u' * 40}")
        files.put("token", b"short")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert eventually(lambda: shown(client) and told)
            assert shown(client) == f"Bearer {'u' * 40}"
        assert "the token before it stays" in str(told[0].message)


def test_what_is_wrong_with_a_tokens_file_is_said_without_showing_it(fake, files):
    secret = b"s3cret-s3cret-s3cret-s3cret-s3cret"
    rows = {
        b"": "0 characters",
        b"short": "5 characters",
        secret + b"\n" + secret: "one token alone",
        secret + b"\x01": "not visible ASCII",
        b"x" * 5000: "not 32 to 4096",
        b"sha256:" + b"a" * 64 + b" name default user": "a line of the server's token file",
    }
    for text, what in rows.items():
        path = files.put("token", text)
        with pytest.raises(ValueError, match=what) as caught:
            gemmd.Client(fake.target, token_file=path)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        gemmd.Client(fake.target, token_file=files.folder / "absent")


def test_a_token_that_everybody_may_read_is_warned_of(fake, token):
    os.chmod(token, 0o644)
    with pytest.warns(RuntimeWarning, match="chmod o-r"):
        gemmd.Client(fake.target, token_file=token).close()


LOCAL = ["127.0.0.1:8470", "127.3.2.1:1", "[::1]:8470", "localhost:8470", "dns:localhost",
         "dns:///localhost:8470", "ipv4:127.0.0.1:1,127.0.0.2:1", "unix:/x",
         "unix-abstract:x"]  # fmt: skip
FAR = ["10.1.2.3:8470", "gemmd.example:8470", "127.0.0.1.example:8470", "dns:///localhost.example",
       "ipv4:127.0.0.1:1,10.1.2.3:1", "dns://10.1.2.3/localhost", "[fe80::1]:8470",
       "0.0.0.0:1"]  # fmt: skip


@pytest.mark.parametrize("target", FAR)
def test_a_token_does_not_travel_in_plaintext_unless_told_to(files, token, target):
    assert not stays_on_host(target)
    for client in (gemmd.Client, gemmd.aio.Client):
        with pytest.raises(ValueError, match="in plaintext"):
            client(target, token_file=token)
        client(target, token_file=token, send_token_in_plaintext=True)
        client(target, token_file=token, tls=gemmd.Tls(ca=files.ca))


@pytest.mark.parametrize("target", LOCAL)
def test_a_token_goes_where_nobody_else_reads(token, target):
    assert stays_on_host(target)
    gemmd.Client(target, token_file=token).close()


def test_only_names_of_the_network_are_names():
    assert name_of("gemm.example:8470") == ("gemm.example", "8470")
    assert name_of("dns:///gemm.example:8470") == ("gemm.example", "8470")
    for target in [
        *LOCAL,
        "10.0.0.1:1",
        "[fd00::1]:1",
        "gemm.example",
        "ipv4:10.0.0.1:1,10.0.0.2:1",
    ]:
        assert name_of(target) is None, target


def test_who_is_not_let_in_gets_an_error_of_its_own(fake, client):
    fake.fail(methods.GET_SERVER_INFO, "UNAUTHENTICATED", "no credential", "NO_CREDENTIALS")
    with pytest.raises(gemmd.Unauthenticated) as caught:
        client.info()
    assert caught.value.reason == "NO_CREDENTIALS"
    assert isinstance(caught.value, PermissionError)


def test_an_operator_looks_at_and_changes_the_log_and_ends_a_session(fake, client):
    assert client.log().level == "info"
    assert client.log(level="debug", sample_calls=0).level == "debug"
    assert (client.log().level, client.log().sample_calls) == ("debug", 0)
    assert client.log(sample_calls=7).sample_calls == 7
    with client.session() as session:
        client.end_session("s-1")
        with pytest.raises(gemmd.NotFound):
            session.keep_alive()
    with pytest.raises(gemmd.NotFound):
        client.end_session("s-2")
    assert client.health() == "serving"
    fake.health = b"\x08\x02"
    assert client.health("cpu:0") == "not serving"
