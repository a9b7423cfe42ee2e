"""What the built gemmd and gemmctl know: flags, commands, metrics, and which configs are right."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

import trustme
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from kustomize import REPOSITORY

METRIC = re.compile(
    r"(?<![:\w])(?:gemmd|process)_[a-z0-9_]+(?![:\w])"
)  # and no part of a recorded name
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

TOKEN = "a-token-of-at-least-thirty-two-characters"


@functools.cache
def _config_class():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            [
                "protoc",
                f"-I{REPOSITORY / 'proto'}",
                f"--descriptor_set_out={out.name}",
                "--include_imports",
                "gemmd/v1/config.proto",
            ],
            check=True,
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gemmd.v1.ServerConfig"))


def parse_config(text: str):
    """A gemmd.v1.ServerConfig; raises text_format.ParseError."""
    return text_format.Parse(text, _config_class()())


def on_cpu(text: str) -> str:
    """The config with a CPU device for each CUDA device.

    A build without CUDA refuses those, and this is about the rest.
    """
    return re.sub(
        r'name: "cuda:(\d+)"', r'name: "cpu:\1"', re.sub(r'\n\s*tuning_table: "[^"]*"', "", text)
    )


def write_secrets(folder: pathlib.Path) -> None:
    """ca.crt, tls.crt, tls.key and tokens, as deploy/README.md has an operator make them."""
    authority = trustme.CA()
    server = authority.issue_cert(
        "gemmd", "gemmd.gemmd.svc", "localhost", "127.0.0.1", common_name="gemmd"
    )
    client = authority.issue_cert("operator.gemmd-clients")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    for name, certificate in (("tls", server), ("client", client)):
        (folder / f"{name}.crt").write_bytes(
            b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )
        (folder / f"{name}.key").write_bytes(certificate.private_key_pem.bytes())
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    (folder / "tokens").write_text(
        f"# name, tenant, role\nsha256:{digest} tester default user\n", encoding="ascii"
    )


@functools.cache
def _checked(gemmd: str, text: str) -> tuple[str, object]:
    """Most planted mistakes are not in the config: it is the same, again and again."""

    def run(flag: str) -> subprocess.CompletedProcess:
        argv = [gemmd, "--config", file.name, flag]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    with tempfile.NamedTemporaryFile("w", suffix=".textproto", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if (checked := run("--check")).returncode != 0:
            return checked.stderr.strip() or f"exit status {checked.returncode}", None
        return "", parse_config(run("--print-config").stdout)


@dataclasses.dataclass
class Facts:
    gemmd: str
    gemmctl: str
    flags: frozenset[str]
    metrics: frozenset[str]
    secrets: pathlib.Path

    def check(self, text: str, moved: dict[str, str]) -> tuple[str, object]:
        """The daemon's complaint about a config, "" when it is right; and it with its defaults.

        `moved`: where what the pod mounts lies on this machine.
        """
        for path, here in moved.items():
            text = text.replace(f'"{path}/', f'"{here}/')
        return _checked(self.gemmd, on_cpu(text))

    def help_of(self, program: str, *command: str) -> str:
        binary = {"gemmd": self.gemmd, "gemmctl": self.gemmctl}[program]
        done = subprocess.run(
            [binary, *command, "--help"], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout if done.returncode == 0 else ""


def _metrics_of_sources() -> set[str]:
    """Names of series that begin with their first event, such as a device's fault."""
    return {
        name
        for path in (REPOSITORY / "server").rglob("*.*")
        if path.suffix in (".cc", ".h")
        for name in re.findall(
            r'"((?:gemmd|process)_[a-z0-9_]+)"', path.read_text(encoding="utf-8")
        )
    }


@contextlib.contextmanager
def running(gemmd: str, config: str):
    """A daemon with this config for as long as the block lasts; gives the metrics' address."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ready, log = folder / "ready", folder / "log"
        (folder / "config").write_text(config.replace("@DIR@", name), encoding="utf-8")
        with log.open("w", encoding="utf-8") as stderr:
            daemon = subprocess.Popen(
                [gemmd, "--config", str(folder / "config"), "--ready-file", str(ready)],
                stderr=stderr,
            )
        try:
            deadline = time.monotonic() + 60
            while not ready.exists():
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"gemmd does not start: {log.read_text(encoding='utf-8')}")
                time.sleep(0.02)
            yield re.search(r"^metrics (.*)$", ready.read_text(encoding="utf-8"), re.M)[1]
        finally:
            daemon.terminate()
            daemon.wait(60)


SMALL = """listeners { address: "unix:@DIR@/gemmd.sock" }
devices { name: "cpu:0" threads: 1 memory_bytes: 67108864 }
devices { name: "cpu:1" threads: 1 memory_bytes: 67108864 }
metrics { address: "127.0.0.1:0" }
drain { notice_ms: 1 }
"""


def _metrics_of_a_daemon(gemmd: str) -> set[str]:
    with (
        running(gemmd, SMALL) as address,
        urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer,
    ):
        lines = answer.read().decode().splitlines()
    return {
        name
        for line in lines
        if not line.startswith("#")
        for name in METRIC.findall(line.partition("{")[0])
    }


def learn(gemmd: str, gemmctl: str, secrets: pathlib.Path) -> Facts:
    write_secrets(secrets)
    help_text = subprocess.run(
        [gemmd, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    metrics = _metrics_of_a_daemon(gemmd) | _metrics_of_sources()
    return Facts(gemmd, gemmctl, frozenset(FLAG.findall(help_text)), frozenset(metrics), secrets)
