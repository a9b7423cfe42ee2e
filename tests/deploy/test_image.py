"""The image for real, without a container engine.

The Dockerfile's CPU stages run in a fresh Debian 12, and the daemon in what comes out: as its
user, with no capability, and nothing writable but what is mounted. Takes minutes, root, and the
distribution's archive. GEMMD_IMAGE_KEEP names a folder to leave the image's tree in,
GEMMD_IMAGE_ROOT such a folder, to test it again.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from container import Spec, container_argv, exec_argv
from daemon import TOKEN, write_secrets
from dockerfile import Dockerfile, health_command
from image import Builder, Image, make_context
from kustomize import REPOSITORY, overlay, the

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot and mounts")


@pytest.fixture(scope="module")
def dockerfile():
    return Dockerfile(REPOSITORY / "Dockerfile")


@pytest.fixture(scope="module")
def image(dockerfile, tmp_path_factory) -> Image:
    if kept := os.environ.get("GEMMD_IMAGE_ROOT"):
        return Image(pathlib.Path(kept))
    work = tmp_path_factory.mktemp("image")
    debian = work / "debian"
    assert shutil.which("debootstrap"), "scripts/packages.sh installs debootstrap"
    subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", str(debian)], check=True, timeout=1800
    )
    binds = {}
    if ccache := _ccache_folder():
        binds["/root/.cache/ccache"] = ccache
    builder = Builder(
        dockerfile,
        make_context(REPOSITORY, work / "context"),
        work,
        {dockerfile.chain("cpu")[0].base: debian},
        binds,
        {"JOBS": os.environ.get("JOBS", "2")},
    )
    built = builder.build("cpu")
    if keep := os.environ.get("GEMMD_IMAGE_KEEP"):
        subprocess.run(["cp", "-a", str(built.root), keep], check=True)
    return built


def _ccache_folder() -> str:
    """This machine's cache of compiled objects, where there is one: an hour becomes minutes."""
    done = subprocess.run(
        ["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=False
    )
    return (
        done.stdout.strip() if done.returncode == 0 and os.path.isdir(done.stdout.strip()) else ""
    )


@dataclasses.dataclass
class Container:
    outer: subprocess.Popen
    pid: int  # of gemmd, in this machine's numbers
    log: pathlib.Path

    def run(self, *argv: str, uid: int = 8470) -> subprocess.CompletedProcess:
        return subprocess.run(
            exec_argv(self.pid, uid, list(argv)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.outer.wait(60)

    def status(self) -> dict[str, str]:
        lines = pathlib.Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@contextlib.contextmanager
def started(spec: Spec, log: pathlib.Path):
    """The container, once gemmd is the process in it."""
    with log.open("w", encoding="utf-8") as out:
        outer = subprocess.Popen(container_argv(spec), stdout=out, stderr=out)
    try:
        deadline, pid = time.monotonic() + 60, 0
        while not pid:
            assert outer.poll() is None and time.monotonic() < deadline, log.read_text(
                encoding="utf-8"
            )
            children = (
                pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
                .read_text(encoding="ascii")
                .split()
            )
            if (
                children
                and pathlib.Path(f"/proc/{children[0]}/comm").read_text(encoding="ascii")
                == "gemmd\n"
            ):
                pid = int(children[0])
            time.sleep(0.05)
        yield Container(outer, pid, log)
    finally:
        outer.kill()
        outer.wait(60)


MATMUL = ("gemmctl", "matmul", "A.npy", "B.npy", "-o", "D.npy", "--verify")
RUN_FOLDER = {"/run/gemmd": "uid=8470,gid=8470,mode=750"}


def of_image(dockerfile: Dockerfile, image: Image, **changes) -> Spec:
    uid, _, gid = dockerfile.last("cpu", "USER").value.partition(":")
    argv = json.loads(dockerfile.last("cpu", "ENTRYPOINT").value) + json.loads(
        dockerfile.last("cpu", "CMD").value
    )
    spec = Spec(
        root=str(image.root),
        argv=argv,
        env=image.env,
        uid=int(uid),
        gid=int(gid),
        read_only=True,
        confined=True,
        network=False,
        workdir=dockerfile.last("cpu", "WORKDIR").value,
        tmpfs=RUN_FOLDER,
    )
    return dataclasses.replace(spec, **changes)


def ask_until(container: Container, argv: list[str]) -> subprocess.CompletedProcess:
    deadline = time.monotonic() + 60
    while (done := container.run(*argv)).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return done


def save_operands(container: Container) -> None:
    """Two matrices in the daemon's own folder, which is the only one it may write to."""
    folder = pathlib.Path(f"/proc/{container.pid}/root/run/gemmd")
    random = np.random.default_rng(7)
    for name, shape in (("A", (48, 64)), ("B", (64, 32))):
        np.save(folder / f"{name}.npy", random.standard_normal(shape).astype(np.float32))
        os.chown(folder / f"{name}.npy", 8470, 8470)


def test_the_image_holds_the_programs_and_no_compiler(image):
    assert sorted(p.name for p in (image.root / "usr/local/bin").iterdir()) == ["gemmctl", "gemmd"]
    for tool in ("g++", "cmake", "git", "python3"):
        assert not (image.root / "usr/bin" / tool).exists()
    times = {p.stat().st_mtime for p in (image.root / "usr/local/bin").iterdir()}
    assert times == {0.0}  # SOURCE_DATE_EPOCH, which the file leaves at 0
    sections = subprocess.run(
        ["objdump", "-h", str(image.root / "usr/local/bin/gemmd")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ".debug_info" not in sections


def test_the_daemon_serves_as_its_user_on_a_read_only_root(dockerfile, image, tmp_path):
    health = health_command(dockerfile.last("cpu", "HEALTHCHECK"))
    with started(of_image(dockerfile, image), tmp_path / "log") as container:
        healthy = ask_until(container, health)
        assert (healthy.returncode, healthy.stdout) == (0, "serving\n"), healthy.stderr
        status = container.status()
        assert status["Uid"].split() == ["8470"] * 4 and status["Gid"].split() == ["8470"] * 4
        assert (
            status["NoNewPrivs"] == "1"
            and int(status["CapBnd"], 16) == 0
            and int(status["CapEff"], 16) == 0
        )
        for path in ("/etc/x", "/usr/local/bin/x", "/tmp/x", "/x"):
            refused = container.run("touch", path, uid=0)  # even root's file system is read-only
            assert refused.returncode != 0 and "Read-only file system" in refused.stderr
        save_operands(container)
        server = ["--server", health[health.index("--server") + 1]]
        done = container.run(*MATMUL, *server)
        assert done.returncode == 0, done.stderr
        assert "verify" in done.stdout
        assert container.stop() == 0
    assert "drained answered_all=true" in (tmp_path / "log").read_text(encoding="utf-8")


def test_the_daemon_does_not_start_where_it_may_not_write_its_socket(dockerfile, image, tmp_path):
    """The test above shows something: without the folder the read-only root is in the way."""
    spec = of_image(dockerfile, image, tmpfs={})
    done = subprocess.run(
        container_argv(spec), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "/run/gemmd/" in done.stderr and "Read-only file system" in done.stderr


@pytest.fixture
def pod_folders(tmp_path):
    """What the overlay `cpu` mounts, as Secret volumes with fsGroup are: the group reads."""
    config, secrets = tmp_path / "config", tmp_path / "secrets"
    config.mkdir()
    secrets.mkdir()
    write_secrets(secrets)
    (config / "gemmd.textproto").write_text(
        the(overlay("cpu"), "ConfigMap")["data"]["gemmd.textproto"], encoding="utf-8"
    )
    for file in secrets.iterdir():
        os.chown(file, 0, 8470)
        file.chmod(0o440)
    return {"config": config, "tls": secrets, "tokens": secrets}


def of_pod(dockerfile: Dockerfile, image: Image, folders: dict[str, pathlib.Path]) -> Spec:
    """The container as the overlay `cpu` has it: its mounts, its user, its arguments."""
    template = the(overlay("cpu"), "Deployment")["spec"]["template"]["spec"]
    (container,) = template["containers"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    run = mounts.pop("run")
    user = template["securityContext"]
    argv = json.loads(dockerfile.last("cpu", "ENTRYPOINT").value) + container["args"]
    return of_image(
        dockerfile,
        image,
        argv=argv,
        uid=user["runAsUser"],
        gid=user["runAsGroup"],
        tmpfs={run: RUN_FOLDER[run]},
        binds={path: f"{folders[name]}:ro" for name, path in mounts.items()},
    )


def probe(container: Container, what: str, port: int) -> str:
    argv = [
        "nsenter",
        "--target",
        str(container.pid),
        "--net",
        sys.executable,
        str(pathlib.Path(__file__).with_name("probe.py")),
    ]
    argv += [what, str(port)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + container.log.read_text(encoding="utf-8")
    return done.stdout


def test_the_pod_answers_its_probes_and_clients_with_a_token(
    dockerfile, image, pod_folders, tmp_path
):
    (manifest,) = the(overlay("cpu"), "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in manifest["ports"]}
    with started(of_pod(dockerfile, image, pod_folders), tmp_path / "log") as container:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probe(container, "grpc", manifest[name]["grpc"]["port"]) == "serving\n"
        assert "gemmd_build_info{" in probe(container, "metrics", ports["metrics"])
        save_operands(container)
        folder = pathlib.Path(f"/proc/{container.pid}/root/run/gemmd")
        (folder / "token").write_text(TOKEN, encoding="ascii")
        os.chown(folder / "token", 8470, 8470)
        (folder / "token").chmod(0o600)
        matmul = [*MATMUL, "--server", f"127.0.0.1:{ports['grpc']}"]
        tls = ["--tls-ca", "/etc/gemmd-tls/ca.crt", "--tls-server-name", "gemmd.gemmd.svc"]
        done = container.run(*matmul, *tls, "--token-file", "token")
        assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text(encoding="utf-8")
        nobody = container.run(*matmul, *tls)
        assert nobody.returncode != 0 and "NO_CREDENTIALS" in nobody.stderr
        assert container.run(*matmul).returncode != 0  # plaintext
        # What `kubectl exec` does: an admin by the daemon's own uid.
        unix = ["--server", "unix:/run/gemmd/gemmd.sock"]
        assert container.run("gemmctl", "sessions", *unix).returncode == 0
        assert container.stop() == 0


def test_the_pod_does_not_start_with_a_key_that_it_cannot_read(dockerfile, image, pod_folders):
    """fsGroup and defaultMode are what makes the key readable."""
    (pod_folders["tls"] / "tls.key").chmod(0o400)
    spec = of_pod(dockerfile, image, pod_folders)
    done = subprocess.run(
        container_argv(spec), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (1, 2)
    assert "tls.key" in done.stderr
