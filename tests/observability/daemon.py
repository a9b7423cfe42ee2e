"""A real gemmd with everything that shows in its metrics: tenants, limits, TLS, tokens, reloads."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
import signal
import subprocess
import time
import urllib.request

import trustme

TOKEN = "a-token-of-at-least-thirty-two-characters"

CONFIG = """
listeners {{ address: "unix:{dir}/team-a.sock" tenant: "team-a" }}
listeners {{ address: "unix:{dir}/team-b.sock" tenant: "team-b" }}
listeners {{
  address: "127.0.0.1:0"
  tenant: "team-b"
  tls {{ certificate_file: "{dir}/tls.crt" key_file: "{dir}/tls.key" }}
  credentials: CREDENTIAL_TOKEN
}}
auth {{ token_file: "{dir}/tokens" }}
tenants {{ name: "team-a" weight: 3 }}
tenants {{ name: "team-b" limits {{ max_buffers: 4 }} }}
devices {{ name: "cpu:0" threads: 1 memory_bytes: 268435456 }}
devices {{ name: "cpu:1" threads: 1 memory_bytes: 268435456 }}
metrics {{ address: "127.0.0.1:0" }}
log {{ level: LEVEL_ERROR }}
drain {{ notice_ms: {notice_ms} limit_ms: 20000 }}
"""


@dataclasses.dataclass
class Daemon:
    process: subprocess.Popen
    folder: pathlib.Path
    tls_address: str
    metrics_address: str

    def target(self, tenant: str) -> str:
        return f"unix:{self.folder}/{tenant}.sock"

    def authority(self) -> bytes:
        return (self.folder / "ca.crt").read_bytes()

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def reload(self, extra: str = "", notice_ms: int = 50) -> None:
        write_config(self.folder, extra, notice_ms)
        self.process.send_signal(signal.SIGHUP)


def write_config(folder: pathlib.Path, extra: str = "", notice_ms: int = 50) -> None:
    text = CONFIG.format(dir=folder, notice_ms=notice_ms) + extra
    (folder / "config").write_text(text, encoding="utf-8")


def _write_secrets(folder: pathlib.Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    (folder / "tls.crt").write_bytes(chain)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    (folder / "tokens").write_text(f"sha256:{digest} tester team-a user\n", encoding="ascii")


@contextlib.contextmanager
def running(gemmd: str, folder: pathlib.Path):
    """A daemon for as long as the block lasts; it must drain to exit status 0 then."""
    _write_secrets(folder)
    write_config(folder)
    ready = folder / "ready"
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [gemmd, "--config", str(folder / "config"), "--ready-file", str(ready)], stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gemmd does not start: {(folder / 'log').read_text()}")
            time.sleep(0.02)
        lines = ready.read_text(encoding="utf-8").split("\n")
        (tls,) = [line for line in lines if line.startswith("127.")]
        (metrics,) = [line.split()[1] for line in lines if line.startswith("metrics ")]
        yield Daemon(process, folder, tls, metrics)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "log").read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
