import numpy as np
import pytest

import gemmd
from gemmd._connection import unary
from gemmd._wire import methods
from gemmd.v1 import device_service_pb2 as pb


@pytest.fixture(params=["direct", "documented"])
def way(request):
    """Either way of making a call."""
    return getattr(unary, request.param)


def test_both_ways_answer_the_same(client, way):
    call = way(client.transport.channel, methods.GET_SERVER_INFO)
    for timeout_s in (None, 10.0, np.float32(10), 1e12, float("inf")):
        assert pb.ServerInfo.FromString(call(b"", timeout_s)).version == "fake"


def test_both_ways_raise_the_servers_status(fake, client, way):
    fake.fail(methods.GET_SERVER_INFO, "RESOURCE_EXHAUSTED", "max_sessions=2 reached", "SESSIONS")
    with pytest.raises(gemmd.ResourceExhausted, match="max_sessions=2") as caught:
        way(client.transport.channel, methods.GET_SERVER_INFO)(b"", 10.0)
    assert (caught.value.reason, caught.value.request_id) == ("SESSIONS", "r-7")


def test_both_ways_say_that_the_client_is_closed(fake, way):
    with gemmd.Client(fake.target) as client:
        call = way(client.transport.channel, methods.GET_SERVER_INFO)
    with pytest.raises(gemmd.Cancelled, match="the client is closed"):
        call(b"", 10.0)


def test_both_ways_keep_the_deadline(fake, client, way):
    fake.delay_s = 5.0
    with pytest.raises(gemmd.DeadlineExceeded):
        way(client.transport.channel, methods.GET_SERVER_INFO)(b"", 0.05)


def test_both_ways_find_no_server(tmp_path, way):
    with gemmd.Client(f"unix:{tmp_path}/none.sock") as client:
        with pytest.raises(gemmd.Unavailable) as caught:
            way(client.transport.channel, methods.GET_SERVER_INFO)(b"", 10.0)
        assert caught.value.reason == ""


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.61.3", "documented"),
        ("1.62.0", "direct"),
        ("1.78.2", "direct"),
        ("1.80.1", "documented"),
    ],
)
def test_the_inner_layer_is_used_with_versions_it_was_tested_with(
    client, monkeypatch, version, expected
):
    monkeypatch.setattr(unary.grpc, "__version__", version)
    call = unary.unary_call(client.transport.channel, methods.GET_SERVER_INFO)
    assert call.__qualname__.startswith(expected + ".")
