"""Which server is meant where none is named."""

import os
import socket

import pytest

import gemmd
import gemmd.aio
from gemmd._connection import target


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """An environment that names no server, and a runtime folder that has none yet."""
    monkeypatch.delenv("GEMMD_SERVER", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def listen(path):
    path.parent.mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    return listener


def test_the_environment_comes_first(nothing, monkeypatch):
    with listen(nothing / "gemmd" / "gemmd.sock"):
        monkeypatch.setenv("GEMMD_SERVER", "gemm.example:8470")
        assert target.default_target() == "gemm.example:8470"


def test_then_the_socket_in_the_runtime_folder(nothing):
    with listen(nothing / "gemmd" / "gemmd.sock"):
        assert target.default_target() == f"unix:{nothing}/gemmd/gemmd.sock"


def test_then_tcp(nothing, monkeypatch):
    monkeypatch.setattr(target, "default_sockets", lambda: [nothing / "gemmd" / "gemmd.sock"])
    assert target.default_target() == "127.0.0.1:8470"


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path):
    folder = tmp_path / "own"
    assert not target._is_ours(folder)
    folder.mkdir(mode=0o700)
    assert target._is_ours(folder)
    folder.chmod(0o770)
    assert not target._is_ours(folder)
    (tmp_path / "link").symlink_to(folder)
    assert not target._is_ours(tmp_path / "link")


def test_connect_waits_for_the_server_and_says_what_to_do_without_one(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMD_SERVER", fake.target)
    with gemmd.connect() as client:
        assert client.info().version
    monkeypatch.setenv("GEMMD_SERVER", f"unix:{tmp_path}/nobody.sock")
    with pytest.raises(gemmd.Unavailable, match=r"nobody\.sock.*start gemmd there.*GEMMD_SERVER"):
        gemmd.connect(connect_timeout_s=0.1)


def test_a_client_that_is_given_no_target_takes_the_default(fake, monkeypatch):
    monkeypatch.setenv("GEMMD_SERVER", fake.target)
    with gemmd.Client() as client:
        assert client.info().version
    assert os.environ["GEMMD_SERVER"] == fake.target


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("http://127.0.0.1:8470", "is an URL; write HOST:PORT, unix:/PATH"),
        ("/run/gemmd/gemmd.sock", "is a path; write unix:/run/gemmd/gemmd.sock"),
        ("127.0.0.1", "has no port of 1 to 65535"),
        ("127.0.0.1:99999", "has no port of 1 to 65535"),
        ("localhost:gemmd", "has no port of 1 to 65535"),
        ("::1", r"as 127.0.0.1:8470 or \[::1\]:8470"),
        ("a:8470,b:8470", "has no port"),
        ("", "has no port"),
        ("unix:", "says nothing behind unix:; write"),
        ("unix:/" + "é" * 60, "a path of 121 bytes; that of a socket has 107 at most"),
        ("unix:///" + "a" * 107, "a path of 108 bytes"),
    ],
)
@pytest.mark.parametrize("client", [gemmd.Client, gemmd.connect, gemmd.aio.Client])
def test_what_is_no_target_is_refused_at_once_with_what_is_one(client, wrong, words, monkeypatch):
    monkeypatch.setenv("GEMMD_SERVER", wrong or "unset:")
    with pytest.raises(ValueError, match=words):
        client(wrong)


@pytest.mark.parametrize(
    "right", ["[::1]:1", "localhost:1", "dns:///localhost:1", "dns:localhost:1", "ipv4:127.0.0.1:1"]
)
def test_all_that_grpc_takes_for_a_target_is_one(right):
    gemmd.Client(right).close()


def test_a_name_behind_tls_needs_no_port():
    gemmd.Client("gemm.example", tls=gemmd.Tls()).close()
    with pytest.raises(ValueError, match="is an URL"):
        gemmd.Client("https://gemm.example", tls=gemmd.Tls())


def test_a_target_of_another_type_is_told():
    with pytest.raises(TypeError, match="target has type int; write HOST:PORT"):
        gemmd.Client(8470)
