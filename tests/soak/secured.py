"""A daemon with certificates that rotate, a config that reloads, and two tenants."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.request

import grpc
import trustme

CONFIG = """
listeners {{ address: "unix:{dir}/worker.sock" tenant: "worker" }}
listeners {{ address: "unix:{dir}/noise.sock" tenant: "noise" }}
listeners {{
  address: "127.0.0.1:0"
  tls {{ certificate_file: "{dir}/tls/tls.crt" key_file: "{dir}/tls/tls.key" client_ca_file: "{dir}/clients.crt" }}
  credentials: CREDENTIAL_CERTIFICATE
}}
auth {{ certificates {{ name: "worker.soak" tenant: "worker" }} }}
tenants {{ name: "default" }}
tenants {{ name: "worker" weight: {weight} }}
tenants {{ name: "noise" limits {{ max_buffer_bytes: 268435456 }} }}
devices {{ name: "cpu:0" threads: 1 memory_bytes: 536870912 }}
session {{ default_grace_ms: 200 }}
metrics {{ address: "127.0.0.1:0" }}
log {{ level: LEVEL_WARNING }}
drain {{ notice_ms: 100 limit_ms: 20000 }}
"""


def _replace(path: pathlib.Path, data: bytes) -> None:
    """Whole or not at all, as a mounted secret changes."""
    draft = path.with_suffix(".new")
    draft.write_bytes(data)
    os.replace(draft, path)


class Secured:
    """Safe to use from several threads."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._server_authority = trustme.CA()
        self._client_authority = trustme.CA()
        self._rotations = 0
        self._identity = self._client_authority.issue_cert("worker.soak")
        _replace(folder / "clients.crt", self._client_authority.cert_pem.bytes())
        self.rotate_server()
        self.write_config(weight=1)
        self.process: subprocess.Popen = None  # type: ignore[assignment]
        self.tls_address = self.metrics_address = ""

    def rotate_server(self) -> None:
        """A new certificate and key at once, as Kubernetes does: one link points to both."""
        certificate = self._server_authority.issue_cert("localhost", "127.0.0.1")
        self._rotations += 1
        pair = self.folder / f"tls-{self._rotations}"
        pair.mkdir()
        (pair / "tls.key").write_bytes(certificate.private_key_pem.bytes())
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        (pair / "tls.crt").write_bytes(chain)
        draft = self.folder / "tls.new"
        draft.symlink_to(pair.name)
        os.replace(draft, self.folder / "tls")

    def rotate_clients(self, watch_s: float) -> None:
        """The way docs/operations.md tells: both authorities, new certificates, the new one alone."""
        authority = trustme.CA()
        with self._lock:
            old = self._client_authority.cert_pem.bytes()
        _replace(self.folder / "clients.crt", old + authority.cert_pem.bytes())
        time.sleep(watch_s)
        with self._lock:
            self._client_authority = authority
            self._identity = authority.issue_cert("worker.soak")
        time.sleep(watch_s)  # whoever is connecting with the old one gets done
        _replace(self.folder / "clients.crt", authority.cert_pem.bytes())

    def channel(self) -> grpc.Channel:
        with self._lock:
            identity = self._identity
        credentials = grpc.ssl_channel_credentials(
            self._server_authority.cert_pem.bytes(),
            identity.private_key_pem.bytes(),
            b"".join(blob.bytes() for blob in identity.cert_chain_pems),
        )
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        return grpc.secure_channel(self.tls_address, credentials, options)

    def write_config(self, weight: float, extra: str = "") -> None:
        text = CONFIG.format(dir=self.folder, weight=weight) + extra
        _replace(self.folder / "config", text.encode())

    def reload(self, weight: float = 1, extra: str = "") -> None:
        self.write_config(weight, extra)
        self.process.send_signal(signal.SIGHUP)

    def target(self, tenant: str) -> str:
        return f"unix:{self.folder}/{tenant}.sock"

    def samples(self) -> dict[str, float]:
        """Every series of /metrics by its text."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def running(gemmd: str, folder: pathlib.Path):
    """For as long as the block lasts; a drain must end it with exit status 0."""
    daemon = Secured(folder)
    ready = folder / "ready"
    with (folder / "log").open("w", encoding="utf-8") as log:
        command = [gemmd, "--config", str(folder / "config"), "--ready-file", str(ready)]
        daemon.process = subprocess.Popen(command, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            if daemon.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gemmd does not start: {daemon.log()}")
            time.sleep(0.02)
        for line in ready.read_text(encoding="utf-8").splitlines():
            if line.startswith("127."):
                daemon.tls_address = line
            elif line.startswith("metrics "):
                daemon.metrics_address = line.split()[1]
        yield daemon
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0, daemon.log()
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait(60)
