"""A server that is not there, or gone: what a caller is told."""

import asyncio
import socketserver
import threading

import grpc
import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._connection.security import Security

W = np.ones((8, 5), "f4")


def test_a_server_that_is_not_there_is_told_with_its_address_and_the_remedy(tmp_path):
    target = f"unix:{tmp_path}/nobody.sock"
    with (
        gemmd.Client(target, retry=gemmd.Retry(attempts=1)) as client,
        pytest.raises(gemmd.Unavailable, match=r"nobody answers at unix:.*; start gemmd there"),
    ):
        client.info()


@pytest.mark.parametrize("way", ["sync", "asyncio"])
def test_what_a_block_raised_is_not_hidden_by_a_server_that_is_gone(fake, way):
    class Mine(Exception):
        pass

    async def awaited():
        async with (
            gemmd.aio.Client(fake.target, retry=gemmd.Retry(attempts=1)) as client,
            client.session() as session,
            await session.upload(W) as held,
            await session.plan([gemmd.fill(held, 0)]),
        ):
            fake.close()
            raise Mine

    def called():
        with (
            gemmd.Client(fake.target, retry=gemmd.Retry(attempts=1)) as client,
            client.session() as session,
            session.upload(W) as held,
            session.plan([gemmd.fill(held, 0)]),
        ):
            fake.close()
            raise Mine

    with pytest.raises(Mine):
        asyncio.run(awaited()) if way == "asyncio" else called()


def test_what_answers_and_is_no_gemmd_is_not_called_nobody():
    class Web(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        target = f"127.0.0.1:{web.server_address[1]}"
        with (
            gemmd.Client(target, retry=gemmd.Retry(attempts=1)) as client,
            pytest.raises(gemmd.Unavailable, match=f"what answers at {target} is no gemmd"),
        ):
            client.info()
        web.shutdown()


def test_a_server_that_is_away_is_looked_for_each_second(monkeypatch):
    """gRPC's own waits grow to two minutes. How long they are cannot be seen in less."""
    given, channel = [], grpc.insecure_channel

    def seen(target, options):
        given.append(dict(options))
        return channel(target, options)

    monkeypatch.setattr(Security.channel, "__defaults__", (grpc.secure_channel, seen))
    with gemmd.Client("127.0.0.1:1"):
        assert all(one["grpc.max_reconnect_backoff_ms"] == 1000 for one in given) and given
